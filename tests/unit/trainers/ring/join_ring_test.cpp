#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/trainers/ring/join_ring.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>

#include <cerrno>

#include "ring_fixture.hpp"
#include "tests/support/few_descriptors.hpp"
#include "tests/support/tcp.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;
using test::on_hosts;
using test::ring_ports;

/// A stranger's connection from 127.0.0.*host*, which says *what*.
unique_fd stranger_at(const ring_port& port, const std::string& what,
                      std::uint8_t host = 1) {
  auto result = test::connect_to_port(port.port(), host);
  EXPECT_TRUE(result);
  EXPECT_EQ(::send(result.get(), what.data(), what.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(what.size()));
  return result;
}

/// Whether a byte travels around the ring.
bool is_whole(ring_ports& ports) {
  std::vector<char> ends(ports.leaders.size(), 0);
  on_hosts(ends.size(), [&](std::size_t host) {
    auto ring = ports.ring(host);
    std::vector<char> data{static_cast<char>(host == 0 ? 'x' : '?')};
    auto done = ring->run(ring->broadcast(
      test::call_number(1), std::as_writable_bytes(std::span{data}), 0));
    EXPECT_TRUE(done) << done.error().message;
    ends[host] = data[0];
  });
  return ends == std::vector<char>(ends.size(), 'x');
}

TEST(join_ring_test, strangers_disturb_nothing) {
  std::vector<bool> kinds{false};
#ifdef TROUPE_TEST_TLS
  kinds.push_back(true);
#endif
  for (auto encrypted : kinds) {
    ring_ports ports{3, encrypted};
    std::vector<unique_fd> strangers;
    for (auto& port : ports.ports) {
      for (int i = 0; i < 20; ++i) // more than are held
        strangers.push_back(stranger_at(port, ""));
      strangers.push_back(stranger_at(port, "GET / HTTP/1.0\r\n\r\n"));
      strangers.push_back(stranger_at(port, std::string(4096, 'x')));
    }
    EXPECT_TRUE(is_whole(ports)) << encrypted;
  }
}

/// What the caller number 0 says at *port*.
std::string greeting_at(const ring_port& port) {
  std::string result = "troupe ring 1";
  result.resize(16, '\0');
  return result + port.token() + std::string(8, '\0');
}

/// Of this thread.
std::chrono::nanoseconds processor_time() {
  timespec x{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &x);
  return std::chrono::seconds{x.tv_sec} + std::chrono::nanoseconds{x.tv_nsec};
}

// All are there before the first of them is read.
TEST(join_ring_test, strangers_do_not_push_a_neighbor_out) {
  for (std::string words : {"", "t"}) {
    ring_ports ports{2, false};
    auto& port = ports.ports[1];
    auto neighbor = stranger_at(port, greeting_at(port));
    std::vector<unique_fd> strangers;
    for (int i = 0; i < 20; ++i) // more than are held
      strangers.push_back(stranger_at(port, words));
    EXPECT_FALSE(ports.join(1, 300ms)); // It says no more.
    char answered = 0;
    EXPECT_EQ(::recv(neighbor.get(), &answered, 1, 0), 1) << words;
    EXPECT_EQ(answered, 't');
  }
}

// It is on another host than they are, and slower.
TEST(join_ring_test, strangers_of_one_address_push_each_other_out) {
  ring_ports ports{2, false};
  auto& port = ports.ports[1];
  auto greeting = greeting_at(port);
  auto neighbor = stranger_at(port, greeting.substr(0, 1));
  std::vector<unique_fd> strangers;
  for (int i = 0; i < 20; ++i) // more than are held
    strangers.push_back(stranger_at(port, "t", 2));
  wake_event stop;
  join_ring_args args;
  args.stop = stop.fd();
  std::thread host{
    [&] { EXPECT_FALSE(join_ring(port, ports.leaders, 1, args)); }};
  char none = 0;
  for (std::size_t i = 0; i < 5; ++i) // as many as find no place
    EXPECT_LE(::recv(strangers[i].get(), &none, 1, 0), 0);
  EXPECT_EQ(::send(neighbor.get(), greeting.data() + 1, greeting.size() - 1, 0),
            static_cast<ssize_t>(greeting.size() - 1));
  std::string answer(greeting.size(), '\0');
  EXPECT_EQ(::recv(neighbor.get(), answer.data(), answer.size(), MSG_WAITALL),
            static_cast<ssize_t>(answer.size()));
  stop.notify();
  host.join();
}

// It was stopped between its greetings, and takes the connection for whole.
TEST(join_ring_test, a_neighbor_may_take_longer_than_a_stranger) {
  ring_ports ports{2, false};
  auto& port = ports.ports[1];
  auto neighbor = stranger_at(port, greeting_at(port));
  wake_event stop;
  join_ring_args args;
  args.stop = stop.fd();
  std::thread host{
    [&] { EXPECT_FALSE(join_ring(port, ports.leaders, 1, args)); }};
  std::string answer(greeting_at(port).size(), '\0');
  EXPECT_EQ(::recv(neighbor.get(), answer.data(), answer.size(), MSG_WAITALL),
            static_cast<ssize_t>(answer.size()));
  // The time of one that came later is over once it is dropped.
  auto stranger = stranger_at(port, "");
  char none = 0;
  EXPECT_EQ(::recv(stranger.get(), &none, 1, 0), 0);
  EXPECT_TRUE(::recv(neighbor.get(), &none, 1, MSG_DONTWAIT) < 0
              && errno == EAGAIN);
  stop.notify();
  host.join();
}

// Its answer took too long, and the neighbor calls again.
TEST(join_ring_test, an_abandoned_call_is_not_a_connection) {
  ring_ports ports{2, false};
  stranger_at(ports.ports[1], greeting_at(ports.ports[1]));
  EXPECT_TRUE(is_whole(ports));
}

TEST(join_ring_test, waits_for_descriptors) {
  ring_ports ports{2, false};
  auto waits = stranger_at(ports.ports[0], "");
  join_ring_args args;
  args.limit = 300ms;
  test::few_descriptors none;
  auto used = processor_time();
  auto joined = join_ring(ports.ports[0], ports.leaders, 0, args);
  used = processor_time() - used;
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ec::timeout);
  EXPECT_LT(used, args.limit / 3) << "it asks again and again";
}

/// Seconds after which the kernel gives an idle connection up.
int silence_of(const byte_link& x) {
  auto option = [&x](int name) {
    int value = 0;
    socklen_t size = sizeof(value);
    ::getsockopt(x.socket(), IPPROTO_TCP, name, &value, &size);
    return value;
  };
  return option(TCP_KEEPIDLE) + option(TCP_KEEPCNT) * option(TCP_KEEPINTVL);
}

TEST(join_ring_test, neighbors_may_be_silent_as_long_as_hosts) {
  const std::pair<std::chrono::milliseconds, int> limits[] = {
    {1s, 12}, {10s, 12}, {19'500ms, 22}, {126s, 128}, {127s, 132}};
  for (auto [lost_after, silence] : limits) {
    ring_ports ports{2, false};
    on_hosts(2, [&](std::size_t host) {
      join_ring_args args;
      args.lost_after = lost_after;
      auto links = join_ring(ports.ports[host], ports.leaders, host, args);
      ASSERT_TRUE(links) << links.error().message;
      EXPECT_EQ(silence_of(*links->next), silence);
      EXPECT_EQ(silence_of(*links->previous), silence);
    });
  }
}

TEST(join_ring_test, connects_over_ipv6) {
  if (!ring_port::open("::1"))
    GTEST_SKIP() << "this host has no IPv6";
  ring_ports ports{2, false, "::1"};
  EXPECT_TRUE(is_whole(ports));
}

TEST(join_ring_test, refuses_names_and_addresses_of_other_hosts) {
  for (auto address : {"localhost", "", "127.0.0.1:80", "192.0.2.1"}) {
    auto port = ring_port::open(address);
    ASSERT_FALSE(port) << address;
    EXPECT_EQ(port.error().code, ec::invalid_config);
    EXPECT_NE(port.error().message.find(address), std::string::npos)
      << port.error().message;
  }
}

// An agent may have reached its driver at an address that is translated.
TEST(join_ring_test, says_how_to_choose_an_address_that_the_host_has) {
  auto port = ring_port::open("192.0.2.1");
  ASSERT_FALSE(port);
  EXPECT_EQ(port.error().message,
            "the network address 192.0.2.1 cannot be used on this host: Cannot "
            "assign requested address; scaling.network_interface chooses "
            "another network");
}

TEST(join_ring_test, names_the_neighbor_that_is_missing) {
  ring_ports ports{3, false};
  // Host b is there, but calls no one; host c has left.
  ports.ports[2] = *ring_port::open("127.0.0.1");
  auto late = ports.join(1, 100ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ec::timeout);
  EXPECT_NE(late.error().message.find("host c (ranks 4-5) could not be reached "
                                      "at 127.0.0.1 port "),
            std::string::npos)
    << late.error().message;
}

TEST(join_ring_test, another_attempt_is_not_a_neighbor) {
  ring_ports ports{2, false};
  auto others = ports.leaders;
  others[1].token = std::string(32, '0');
  join_ring_args args;
  args.limit = 300ms;
  std::thread there{[&] { EXPECT_FALSE(ports.join(1, 300ms)); }};
  auto here = join_ring(ports.ports[0], others, 0, args);
  there.join();
  ASSERT_FALSE(here);
  EXPECT_EQ(here.error().code, ec::timeout);
}

TEST(join_ring_test, all_hosts_encrypt_or_none) {
  ring_ports ports{2, false};
  ports.leaders[1].encrypted = true;
  auto joined = ports.join(0);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ec::invalid_config);
}

TEST(join_ring_test, ends_when_it_is_asked_to_stop) {
  ring_ports ports{2, false};
  wake_event stop;
  stop.notify();
  join_ring_args args;
  args.stop = stop.fd();
  auto joined = join_ring(ports.ports[0], ports.leaders, 0, args);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ec::stopped);
}

#ifdef TROUPE_TEST_TLS
TEST(join_ring_test, refuses_a_certificate_of_another_run) {
  ring_ports ports{2, true};
  auto strange = *make_link_credentials("run1"); // the same name, later
  std::thread there{[&] { EXPECT_FALSE(ports.join(1, 1500ms)); }};
  join_ring_args args;
  args.security = *encrypted_links(strange, "run1");
  args.limit = 1500ms;
  auto here = join_ring(ports.ports[0], ports.leaders, 0, args);
  there.join();
  ASSERT_FALSE(here);
  EXPECT_EQ(here.error().code, ec::timeout);
  EXPECT_NE(here.error().message.find("certificate"), std::string::npos)
    << here.error().message;
}
#endif

TEST(join_ring_test, refuses_a_text_that_names_no_leader) {
  for (auto text : {"", "1\n2\n3", "x\n1\n127.0.0.1\n1\n\n0\na"})
    EXPECT_FALSE(decode_leader(text)) << text;
}

} // namespace

} // namespace troupe::internal
