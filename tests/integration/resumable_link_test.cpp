#include "troupe/actors/transport/resumable_link.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <gtest/gtest.h>

#include "tests/support/few_descriptors.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tcp.hpp"

namespace troupe::internal::test {
namespace {

using namespace std::chrono_literals;

using bytes = std::vector<std::byte>;

/// A socket that can break.
class fragile_link : public socket_link {
public:
  using socket_link::socket_link;

  std::optional<std::size_t> receive(std::span<std::byte> to) override {
    largest_read = std::max(largest_read, to.size());
    return is_broken ? std::nullopt : socket_link::receive(to);
  }

  std::optional<std::size_t> send(std::span<const std::byte> from) override {
    return is_broken ? std::nullopt : socket_link::send(from);
  }

  bool is_broken = false;
  std::size_t largest_read = 0;
};

/// One side of a link, which counts its breaks.
struct side {
  explicit side(unique_fd socket, std::chrono::milliseconds patience = 30s)
    : side(std::make_unique<fragile_link>(std::move(socket)), patience) {}

  side(std::unique_ptr<fragile_link> first, std::chrono::milliseconds patience)
    : lower(first.get()),
      link(std::move(first), std::make_shared<link_switch>(),
           {patience, 0ms, 0ms, [this] { ++breaks; }}) {}

  bool resume(unique_fd socket) {
    auto next = std::make_unique<fragile_link>(std::move(socket));
    lower = next.get();
    return link.resume(std::move(next));
  }

  /// Moves what the sockets take now.
  void move() {
    while (sent < to_send.size() || link.has_unsent()) {
      auto size = link.send(std::span{to_send}.subspan(sent));
      if (!size)
        return void(link.wait_for_next());
      if (*size == 0)
        break;
      sent += *size;
    }
    bytes buffer(10'000);
    for (;;) {
      auto size = link.receive(buffer);
      if (!size)
        return void(link.wait_for_next());
      if (*size == 0)
        return;
      received.insert(received.end(), buffer.begin(),
                      buffer.begin() + static_cast<std::ptrdiff_t>(*size));
    }
  }

  bytes to_send;
  std::size_t sent = 0;
  bytes received;
  int breaks = 0;
  fragile_link* lower; ///< Unless `link.is_broken()`.
  resumable_link link;
};

std::pair<unique_fd, unique_fd> ends() {
  return *socket_pair("a test needs a socket");
}

bytes numbers(std::size_t size, unsigned seed) {
  std::mt19937 random{seed};
  bytes result(size);
  for (auto& x : result)
    x = static_cast<std::byte>(random());
  return result;
}

class resumable_link_test : public testing::Test {
protected:
  /// What is in the sockets is lost.
  void reconnect() {
    auto [left, right] = ends();
    ASSERT_TRUE(first.resume(std::move(left)));
    ASSERT_TRUE(second.resume(std::move(right)));
  }

  std::pair<unique_fd, unique_fd> sockets = ends();
  side first{std::move(sockets.first)};
  side second{std::move(sockets.second)};
};

TEST_F(resumable_link_test, bytes_arrive_once_and_in_order_over_many_breaks) {
  first.to_send = numbers(8'000'000, 1);
  second.to_send = numbers(3'000'000, 2);
  std::mt19937 random{3};
  for (int round = 0; first.received.size() < second.to_send.size()
                      || second.received.size() < first.to_send.size();
       ++round) {
    ASSERT_LT(round, 1'000'000);
    if (auto what = random() % 40; what == 0)
      reconnect();
    else if (what == 1 && !first.link.is_broken() && !second.link.is_broken())
      first.lower->is_broken = second.lower->is_broken = true;
    if (random() % 2 == 0)
      first.move();
    if (random() % 3 == 0)
      second.move();
    if (first.link.is_broken() && second.link.is_broken())
      reconnect();
  }
  EXPECT_TRUE(second.received == first.to_send);
  EXPECT_TRUE(first.received == second.to_send);
  EXPECT_GT(first.breaks, 0);
}

// A driver has one for each of its hosts.
TEST_F(resumable_link_test, keeps_no_more_room_than_for_a_record_of_tls) {
  first.to_send = numbers(1'000'000, 4);
  while (second.received.size() < first.to_send.size()) {
    first.move();
    second.move();
  }
  EXPECT_TRUE(second.received == first.to_send);
  constexpr std::size_t header = 12;
  EXPECT_LE(second.lower->largest_read, 16 * 1024 + header);
}

TEST_F(resumable_link_test, sends_no_more_ahead_than_it_may) {
  first.to_send = numbers(100'000, 5);
  first.move();
  EXPECT_EQ(first.sent, std::size_t{32} * 1024);
  EXPECT_FALSE(first.link.has_unsent());
  EXPECT_FALSE(first.link.takes_data());
  second.move(); // It confirms.
  first.move();
  first.move();
  EXPECT_GT(first.sent, std::size_t{32} * 1024);
  while (second.received.size() < first.to_send.size()) {
    second.move();
    first.move();
  }
  EXPECT_TRUE(second.received == first.to_send);
}

TEST_F(resumable_link_test, sends_more_ahead_the_longer_a_message_is) {
  auto round_trips_of = [this](std::size_t size) {
    first.to_send = numbers(size, 8);
    first.sent = 0;
    second.received.clear();
    auto result = 0;
    for (; second.received.size() < size && result < 1000; ++result) {
      first.move();
      second.move();
      first.move(); // It learns what is confirmed.
    }
    EXPECT_TRUE(second.received == first.to_send);
    return result;
  };
  auto trips = round_trips_of(1'000'000);
  EXPECT_LE(trips, 15) << "the socket takes about 200 KB";
  EXPECT_EQ(round_trips_of(20'000), 1);
  EXPECT_GE(round_trips_of(1'000'000), trips) << "it begins with little again";
}

TEST_F(resumable_link_test, waits_for_nothing_but_the_socket_as_it_ends) {
  first.to_send = numbers(100'000, 6);
  first.move();
  first.link.lift_limit();
  EXPECT_TRUE(first.link.takes_data());
  first.move();
  EXPECT_EQ(first.sent, first.to_send.size());
  second.move();
  EXPECT_TRUE(second.received == first.to_send);
}

bool is_writable(int socket) {
  pollfd x{socket, POLLOUT, 0};
  return ::poll(&x, 1, 30'000) == 1 && x.revents == POLLOUT;
}

void set_for_tcp(int socket, int option) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, option, &on, sizeof(on));
}

/// Sends *part* again and again until *link* takes no more, over a socket of
/// TCP. Returns whether the window of the other side is still open.
bool leaves_window_open(resumable_link& link, std::span<const std::byte> part) {
  while (link.has_unsent() || link.takes_data())
    if (!link.send(part) || (link.has_unsent() && !is_writable(link.socket())))
      return false;
  // Now it is writable once nothing waits for room at the other side.
  set_for_tcp(link.socket(), TCP_NOTSENT_LOWAT);
  return is_writable(link.socket());
}

// The kernel of an agent would take its window for a dead host.
TEST_F(resumable_link_test, leaves_the_window_of_a_stopped_process_open) {
  const plain_listener listener;
  auto own = connect_to_port(listener.port());
  auto stopped = listener.accept();
  set_for_tcp(own.get(), TCP_NODELAY);
  side sender{std::move(own)};
  EXPECT_TRUE(leaves_window_open(sender.link, numbers(100, 7)));
}

TEST_F(resumable_link_test, leaves_the_window_open_within_a_long_message) {
  const plain_listener listener;
  for (auto size : {100'000u, 300'000u, 1'000'000u, 10'000'000u}) {
    side sender{connect_to_port(listener.port())};
    side stopped{listener.accept()};
    sender.to_send = numbers(size, 9);
    while (stopped.received.size() < size / 2) {
      sender.move();
      stopped.move();
    }
    EXPECT_TRUE(leaves_window_open(sender.link, sender.to_send)) << size;
  }
}

TEST_F(resumable_link_test, waits_for_the_next_connection_as_long_as_it_may) {
  auto [own, other] = ends();
  side impatient{std::move(own), 1ms};
  impatient.lower->is_broken = true;
  bytes buffer(10);
  EXPECT_FALSE(impatient.link.receive(buffer));
  ASSERT_TRUE(impatient.link.wait_for_next());
  EXPECT_EQ(impatient.breaks, 1);
  pollfd timer{impatient.link.socket(), POLLIN, 0};
  ASSERT_EQ(::poll(&timer, 1, 30'000), 1);
  EXPECT_FALSE(impatient.link.receive(buffer));
  EXPECT_FALSE(impatient.link.wait_for_next());
  EXPECT_FALSE(
    impatient.link.resume(std::make_unique<socket_link>(ends().first)));
}

TEST_F(resumable_link_test, waits_also_while_there_is_no_descriptor_left) {
  if (sanitized)
    GTEST_SKIP() << "a sanitizer opens pipes to look at memory";
  for (int round = 0; round < 2; ++round) {
    auto [own, other] = ends();
    ASSERT_TRUE(first.resume(std::move(own)));
    const unique_fd in_event_loop{first.link.release_socket()};
    few_descriptors none;
    first.lower->is_broken = true;
    first.move();
    EXPECT_TRUE(first.link.is_broken());
    EXPECT_EQ(first.breaks, round + 1);
    EXPECT_EQ(first.link.receive(std::span<std::byte>{}), std::size_t{0});
  }
}

/// How long a link waits whose connection breaks *silent* after its last byte;
/// unless it *is_agreed*, after it was resumed without an answer.
std::chrono::milliseconds wait_of(resume_options options,
                                  std::chrono::milliseconds silent,
                                  std::chrono::milliseconds longer = 0ms,
                                  bool is_agreed = true) {
  auto now = std::chrono::steady_clock::now();
  options.now = [&now] { return now; };
  auto next = std::make_shared<link_switch>();
  auto lower = std::make_unique<fragile_link>(ends().first);
  lower->is_broken = true;
  resumable_link link{std::move(lower), next, options};
  if (longer > 0ms)
    next->wait_for(longer);
  if (!is_agreed) {
    auto again = std::make_unique<fragile_link>(ends().first);
    again->is_broken = true;
    EXPECT_TRUE(link.resume(std::move(again)));
  }
  now += silent;
  EXPECT_TRUE(link.wait_for_next());
  itimerspec left{};
  ::timerfd_gettime(link.socket(), &left);
  auto exact = std::chrono::seconds{left.it_value.tv_sec}
               + std::chrono::nanoseconds{left.it_value.tv_nsec};
  return std::chrono::ceil<std::chrono::seconds>(exact);
}

TEST_F(resumable_link_test, waits_longer_if_the_other_side_was_silent_before) {
  resume_options options;
  options.patience = 20'000s;
  options.least_patience = 2'000s;
  options.sudden = 3'000s;
  EXPECT_EQ(wait_of(options, 1'000s), 2'000s) << "its process has ended";
  EXPECT_EQ(wait_of(options, 5'000s), 15'000s);
  EXPECT_EQ(wait_of(options, 19'000s), 2'000s);
  EXPECT_EQ(wait_of(options, 5'000s, 60'000s), 55'000s);
}

TEST_F(resumable_link_test, waits_if_the_other_side_gave_a_connection_up) {
  resume_options options;
  options.patience = 20'000s;
  options.least_patience = 2'000s;
  options.sudden = 3'000s;
  EXPECT_EQ(wait_of(options, 1'000s, 0ms, false), 19'000s);
}

TEST_F(resumable_link_test, does_not_wait_for_a_process_that_has_ended) {
  side survivor{ends().first};
  survivor.move();
  EXPECT_EQ(survivor.breaks, 0);
  EXPECT_FALSE(survivor.resume(ends().first));
}

TEST_F(resumable_link_test, a_link_that_was_finished_does_not_continue) {
  first.to_send = numbers(10, 1);
  first.move();
  first.link.finish();
  second.move();
  EXPECT_EQ(second.received.size(), 10u);
  EXPECT_EQ(second.breaks, 0);
  EXPECT_FALSE(second.link.resume(std::make_unique<socket_link>(ends().first)));
}

TEST_F(resumable_link_test,
       is_over_if_the_other_side_confirms_what_was_not_sent) {
  auto [own, other] = ends();
  ASSERT_TRUE(first.link.resume(std::make_unique<socket_link>(std::move(own))));
  const unsigned char record[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  ASSERT_EQ(::send(other.get(), record, sizeof(record), MSG_NOSIGNAL), 12);
  first.move();
  EXPECT_FALSE(first.link.resume(std::make_unique<socket_link>(ends().first)));
}

// The other side gave it up before an answer came, and tries another one.
TEST_F(resumable_link_test, outlives_a_connection_that_was_given_up_at_once) {
  first.lower->is_broken = second.lower->is_broken = true;
  first.to_send = numbers(1000, 1);
  first.move();
  second.move();
  ASSERT_TRUE(second.resume(ends().first));
  bytes buffer(10);
  EXPECT_FALSE(second.link.receive(buffer));
  ASSERT_TRUE(second.link.wait_for_next());
  reconnect();
  first.move();
  second.move();
  first.move(); // They agree.
  first.move();
  second.move();
  EXPECT_TRUE(second.received == first.to_send);
}

TEST_F(resumable_link_test, does_not_wait_once_both_sides_have_agreed) {
  auto [own, other] = ends();
  ASSERT_TRUE(first.resume(std::move(own)));
  const unsigned char record[12] = {};
  ASSERT_EQ(::send(other.get(), record, sizeof(record), MSG_NOSIGNAL), 12);
  other.reset();
  bytes buffer(10);
  EXPECT_FALSE(first.link.receive(buffer));
  EXPECT_FALSE(first.link.wait_for_next());
}

TEST_F(resumable_link_test, does_not_count_time_in_which_the_process_stood) {
  auto now = std::chrono::steady_clock::now();
  resumable_link link{std::make_unique<socket_link>(ends().first),
                      std::make_shared<link_switch>(),
                      {1ms, 1ms, 0ms, {}, [&now] { return now; }}};
  auto [own, other] = ends();
  ASSERT_TRUE(link.resume(std::make_unique<socket_link>(std::move(own))));
  other.reset();
  bytes buffer(10);
  EXPECT_FALSE(link.receive(buffer));
  ASSERT_TRUE(link.wait_for_next());
  now += 1h; // The timer is as late.
  pollfd timer{link.socket(), POLLIN, 0};
  ASSERT_EQ(::poll(&timer, 1, 30'000), 1);
  EXPECT_EQ(link.receive(buffer), std::size_t{0});
  now += 1ms;
  ASSERT_EQ(::poll(&timer, 1, 30'000), 1);
  EXPECT_FALSE(link.receive(buffer));
}

TEST_F(resumable_link_test, a_switch_closes_what_no_one_takes) {
  auto [own, other] = ends();
  link_switch next;
  next.serve({});
  next.connect(std::make_unique<socket_link>(std::move(own)));
  char byte = 0;
  EXPECT_EQ(::recv(other.get(), &byte, 1, 0), 0);
}

// The link whose connection it is may be made on another thread.
TEST_F(resumable_link_test, a_switch_keeps_the_latest_for_who_serves_it) {
  auto [own, other] = ends();
  auto socket = own.get();
  link_switch next;
  next.connect(std::make_unique<socket_link>(ends().first));
  next.connect(std::make_unique<socket_link>(std::move(own)));
  std::unique_ptr<byte_link> taken;
  next.serve([&](std::unique_ptr<byte_link> x) { taken = std::move(x); });
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->socket(), socket);
}

} // namespace
} // namespace troupe::internal::test
