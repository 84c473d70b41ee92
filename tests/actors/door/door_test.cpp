#include "troupe/actors/door/door.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <openssl/ssl.h>

#include "tests/actors/door/door_fixture.hpp"
#include "tests/support/idle_child.hpp"
#include "tests/support/sanitized.hpp"
#include "troupe/actors/door/openssl.hpp"
#include "troupe/runtime/process/internet_socket.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using fault = channel_fault;

/// Waits until the other side closes *socket*, whatever it says before.
void await_end(const unique_fd& socket) {
  char buffer[4096];
  while (::recv(socket.get(), buffer, sizeof(buffer), 0) > 0)
    ;
}

/// A TLS client of another make: no certificate, and it believes any server.
struct foreign_client {
  foreign_client(std::uint16_t port, int newest_version)
    : socket(connect_to_port(port)), context(SSL_CTX_new(TLS_client_method())),
      ssl(nullptr) {
    SSL_CTX_set_max_proto_version(context.get(), newest_version);
    ssl.reset(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), socket.get());
  }

  /// Shakes hands and waits for the first byte, the alert or the end.
  bool enter() {
    char byte;
    ERR_clear_error();
    auto result =
      SSL_connect(ssl.get()) == 1 && SSL_read(ssl.get(), &byte, 1) == 1;
    ERR_clear_error();
    return result;
  }

  unique_fd socket;
  std::unique_ptr<SSL_CTX, openssl_free<&SSL_CTX_free>> context;
  std::unique_ptr<SSL, openssl_free<&SSL_free>> ssl;
};

// -- the right peer -----------------------------------------------------------

TEST_F(door_test, lets_an_agent_of_its_run_in) {
  open();
  door_client agent{port(), certificates.agent_identity()};
  ASSERT_TRUE(agent.enter()) << agent.channel->failure().text;
  auto accepted = record.next_client();
  ASSERT_TRUE(accepted);
  EXPECT_TRUE(say(*accepted, "welcome"));
  EXPECT_EQ(hear(*agent.channel), "welcome");
  EXPECT_TRUE(say(*agent.channel, "thanks"));
  EXPECT_EQ(hear(*accepted), "thanks");
  agent.channel->finish();
  EXPECT_EQ(hear(*accepted), "");
  EXPECT_EQ(accepted->failure().cause, channel_fault::closed);
}

// It may outlive a driver that is killed.
TEST_F(door_test, a_forked_process_keeps_neither_port_nor_connection) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  open();
  door_client agent{port(), certificates.agent_identity()};
  ASSERT_TRUE(agent.enter());
  auto accepted = record.next_client();
  ASSERT_TRUE(accepted);
  auto at = port();
  idle_child child;
  ASSERT_TRUE(child.is_there());
  opened.reset();
  accepted.reset();
  EXPECT_EQ(hear(*agent.channel), "");
  EXPECT_EQ(agent.channel->failure().cause, fault::closed);
  EXPECT_FALSE(connect_to_port(at));
}

TEST_F(door_test, takes_ipv6_at_the_same_port) {
  open();
  unique_fd socket{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port());
  address.sin6_addr = in6addr_loopback;
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address),
                sizeof(address))
      != 0)
    GTEST_SKIP() << "this host has no IPv6";
  EXPECT_EQ(endpoint::remote(socket.get()).value().text(), "::1");
  ASSERT_EQ(::shutdown(socket.get(), SHUT_WR), 0);
  EXPECT_EQ(record.refusals(1).at(0).address, "::1");
}

TEST_F(door_test, keeps_data_that_is_larger_than_a_socket_s_buffer_whole) {
  open();
  door_client agent{port(), certificates.agent_identity()};
  ASSERT_TRUE(agent.enter());
  auto accepted = record.next_client();
  std::string sent(8 * 1024 * 1024, 'x');
  for (std::size_t i = 0; i < sent.size(); i += 1000)
    sent[i] = static_cast<char>(i / 1000);
  std::thread writer{[&] {
    for (std::size_t at = 0; at < sent.size();) {
      std::size_t size = 0;
      auto step = [&] {
        auto x = accepted->write(std::as_bytes(std::span{sent}).subspan(at));
        size = x.size;
        return x.what;
      };
      if (finish_step(*accepted, step) != tls_channel::progress::done)
        return;
      at += size;
    }
  }};
  std::string got;
  while (got.size() < sent.size()) {
    auto part = hear(*agent.channel);
    if (part.empty())
      break;
    got += part;
  }
  writer.join();
  EXPECT_TRUE(got == sent);
}

TEST_F(door_test, changes_the_key_of_what_it_sends) {
  open([](door_args& x) { x.link.key_bytes = 1000; });
  foreign_client peer{port(), TLS1_3_VERSION};
  auto ssl = peer.ssl.get();
  auto own = decode(certificates.agent).value();
  ASSERT_EQ(SSL_use_certificate(ssl, own.certificate.get()), 1);
  ASSERT_EQ(SSL_use_PrivateKey(ssl, own.key.get()), 1);
  int updates = 0;
  SSL_set_msg_callback(ssl, [](int is_sent, int, int type, const void* message,
                               std::size_t size, SSL*, void* count) {
    if (is_sent == 0 && type == SSL3_RT_HANDSHAKE && size > 0
        && *static_cast<const unsigned char*>(message) == SSL3_MT_KEY_UPDATE)
      ++*static_cast<int*>(count);
  });
  SSL_set_msg_callback_arg(ssl, &updates);
  auto greeting = text_of(door_greeting{});
  std::array<char, 100> buffer;
  ASSERT_EQ(SSL_connect(ssl), 1);
  ASSERT_EQ(SSL_write(ssl, greeting.data(), static_cast<int>(greeting.size())),
            static_cast<int>(greeting.size()));
  ASSERT_EQ(SSL_read(ssl, buffer.data(), 100), 1);
  auto accepted = record.next_client();
  ASSERT_TRUE(accepted);
  const std::string part(100, 'x');
  for (int i = 0; i < 35; ++i) {
    ASSERT_TRUE(say(*accepted, part));
    ASSERT_EQ(SSL_read(ssl, buffer.data(), 100), 100);
    ASSERT_EQ(std::string(buffer.begin(), buffer.end()), part);
  }
  EXPECT_EQ(updates, 3);
}

TEST_F(door_test, changes_its_key_though_it_cannot_send_and_reads_on) {
  open([](door_args& x) { x.link.key_bytes = 1; });
  door_client agent{port(), certificates.agent_identity()};
  ASSERT_TRUE(agent.enter());
  auto accepted = record.next_client();
  ASSERT_TRUE(accepted);
  const std::string part(1000, 'x');
  auto write = [&] {
    return accepted->write(std::as_bytes(std::span{part})).what;
  };
  std::size_t sent = 0;
  while (write() == tls_channel::progress::done)
    sent += part.size();
  ASSERT_TRUE(say(*agent.channel, "news"));
  EXPECT_EQ(hear(*accepted), "news");
  auto take_all = [&] {
    while (sent > 0) {
      auto got = hear(*agent.channel).size();
      ASSERT_GT(got, 0u);
      sent -= std::min(sent, got);
    }
  };
  take_all();
  sent = part.size(); // what had to wait
  ASSERT_TRUE(say(*accepted, part));
  take_all();
}

TEST_F(door_test, has_the_kernel_watch_the_link) {
  open();
  door_client agent{port(), certificates.agent_identity()};
  ASSERT_TRUE(agent.enter());
  auto accepted = record.next_client();
  for (auto* side : {agent.channel.get(), accepted.get()}) {
    auto option = [&](int level, int name) {
      int value = -1;
      socklen_t size = sizeof(value);
      ::getsockopt(side->socket(), level, name, &value, &size);
      return value;
    };
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 10000);
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 9);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
  }
}

// -- strangers ----------------------------------------------------------------

TEST_F(door_test, refuses_a_client_without_a_certificate) {
  open();
  foreign_client client{port(), TLS1_3_VERSION};
  EXPECT_FALSE(client.enter());
  EXPECT_EQ(record.first_cause(), fault::no_certificate);
}

TEST_F(door_test, refuses_an_older_tls) {
  open();
  foreign_client client{port(), TLS1_2_VERSION};
  EXPECT_FALSE(client.enter());
  EXPECT_EQ(record.first_cause(), fault::old_protocol);
}

TEST_F(door_test, refuses_a_web_browser) {
  open();
  auto client = connect_to_port(port());
  std::string request = "GET / HTTP/1.0\r\n\r\n";
  ::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL);
  await_end(client);
  EXPECT_EQ(record.first_cause(), fault::http_request);
}

TEST_F(door_test, refuses_garbage) {
  open();
  auto client = connect_to_port(port());
  ::send(client.get(), "what is this\n", 13, MSG_NOSIGNAL);
  await_end(client);
  EXPECT_EQ(record.first_cause(), fault::not_tls);
}

TEST_F(door_test, refuses_a_client_that_leaves) {
  open();
  connect_to_port(port());
  EXPECT_EQ(record.first_cause(), fault::closed);
}

TEST_F(door_test, does_not_count_connections_that_end_before_they_greet) {
  open();
  connect_to_port(port());
  ASSERT_EQ(record.refusals(1).size(), 1u);
  {
    door_client agent{port(), certificates.agent_identity()};
    finish_step(*agent.channel, [&] { return agent.channel->shake_hands(); });
  }
  ASSERT_EQ(record.refusals(2).size(), 2u);
  auto stranger = connect_to_port(port());
  ::send(stranger.get(), "garbage\n", 8, MSG_NOSIGNAL);
  await_end(stranger);
  auto refusals = record.refusals(3);
  ASSERT_EQ(refusals.size(), 3u);
  EXPECT_TRUE(refusals[0].has_left);
  EXPECT_TRUE(refusals[1].has_left) << refusals[1].text;
  EXPECT_FALSE(refusals[2].has_left);
  EXPECT_EQ(refusals[2].count, 1u);
}

TEST_F(door_test, gives_silent_clients_up) {
  open([](door_args& x) { x.handshake_limit = 20ms; });
  auto nothing = connect_to_port(port());
  await_end(nothing);
  EXPECT_EQ(record.first_cause(), fault::silent);
  // An agent that shakes hands, but does not greet, is silent as well.
  door_client agent{port(), certificates.agent_identity()};
  finish_step(*agent.channel, [&] { return agent.channel->shake_hands(); });
  EXPECT_EQ(hear(*agent.channel), "");
  EXPECT_EQ(record.refusals(2).at(1).cause, fault::silent);
}

TEST_F(door_test, refuses_another_greeting) {
  open();
  door_client agent{port(), certificates.agent_identity()};
  EXPECT_FALSE(agent.enter("U"));
  EXPECT_EQ(record.first_cause(), fault::damaged);
}

// -- floods -------------------------------------------------------------------

TEST_F(door_test, stays_open_for_agents_in_a_flood_of_strangers) {
  open();
  door_client first{port(), certificates.agent_identity()};
  ASSERT_TRUE(first.enter());
  auto first_accepted = record.next_client();
  std::vector<unique_fd> silent;
  for (int i = 0; i < 200; ++i)
    silent.push_back(connect_to_port(port()));
  for (int i = 0; i < 300; ++i) {
    auto stranger = connect_to_port(port());
    ::send(stranger.get(), "GARBAGE\n", 8, MSG_NOSIGNAL);
    await_end(stranger);
    if (i % 100 == 0) {
      ASSERT_TRUE(say(*first.channel, "still here"));
      ASSERT_EQ(hear(*first_accepted), "still here");
    }
  }
  door_client second{port(), certificates.agent_identity()};
  ASSERT_TRUE(second.enter()) << second.channel->failure().text;
  EXPECT_TRUE(record.next_client());
  // Each stranger with garbage, and the silent ones that had to make room.
  auto refusals = record.refusals(300 + 200 - 64);
  EXPECT_EQ(std::ranges::count(refusals, fault::not_tls, &door_refusal::cause),
            300);
  EXPECT_GE(std::ranges::count(refusals, fault::crowded, &door_refusal::cause),
            200 - 64);
  EXPECT_TRUE(say(*first_accepted, "and here"));
  EXPECT_EQ(hear(*first.channel), "and here");
}

TEST_F(door_test, makes_room_by_closing_the_oldest_that_is_silent) {
  open([](door_args& x) { x.max_pending = 2; });
  // The begin of a TLS message, and of no second one: the first is heard of
  // before the second connects, because the door takes events in order.
  auto speaks = connect_to_port(port());
  ::send(speaks.get(), "\x16\x03\x01", 3, MSG_NOSIGNAL);
  connect_to_port(port());
  EXPECT_EQ(record.first_cause(), fault::closed);
  auto silent = connect_to_port(port());
  door_client agent{port(), certificates.agent_identity()};
  EXPECT_TRUE(agent.enter());
  await_end(silent);
  EXPECT_EQ(record.refusals(2).at(1).cause, fault::crowded);
  char byte;
  EXPECT_EQ(::recv(speaks.get(), &byte, 1, MSG_DONTWAIT), -1);
}

TEST_F(door_test, a_flood_from_one_address_makes_room_in_its_own_places) {
  constexpr std::size_t places = 4;
  open([](door_args& x) {
    x.max_pending = places;
    x.handshake_limit = door_patience;
  });
  door_client agent{port(), certificates.agent_identity()};
  agent.channel->shake_hands(); // It has said hello, and waits.
  std::vector<unique_fd> strangers;
  for (std::size_t i = 0; i < 40; ++i) {
    strangers.push_back(connect_to_port(port(), 2));
    ::send(strangers.back().get(), "\x16\x03\x01", 3, MSG_NOSIGNAL);
  }
  auto refusals = record.refusals(40 + 1 - places);
  EXPECT_EQ(refusals.size(), 40 + 1 - places);
  for (auto& x : refusals) {
    EXPECT_EQ(x.cause, fault::crowded) << x.text;
    EXPECT_EQ(x.address, "127.0.0.2");
  }
  EXPECT_TRUE(agent.enter()) << agent.channel->failure().text;
}

/// Lets this process open no more descriptors, until its end.
class no_more_descriptors {
public:
  no_more_descriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    unique_fd next{::dup(0)};
    auto now = before_;
    now.rlim_cur = static_cast<rlim_t>(next.get());
    ::setrlimit(RLIMIT_NOFILE, &now);
  }

  ~no_more_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
  rlimit before_{};
};

TEST_F(door_test, waits_for_descriptors_and_says_so_once_per_shortage) {
  open();
  auto first = connect_to_port(port());
  EXPECT_TRUE(first);
  // The door has taken it; others are there before descriptors run out.
  ::send(first.get(), "garbage\n", 8, MSG_NOSIGNAL);
  await_end(first);
  for (std::size_t known : {1, 3}) {
    unique_fd next{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    {
      no_more_descriptors limit;
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port());
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(::connect(next.get(), reinterpret_cast<sockaddr*>(&address),
                          sizeof(address)),
                0);
      auto refusals = record.refusals(known + 1);
      ASSERT_EQ(refusals.size(), known + 1);
      EXPECT_EQ(refusals[known].cause, fault::lost);
      EXPECT_EQ(refusals[known].address, "");
    }
    ::send(next.get(), "garbage\n", 8, MSG_NOSIGNAL);
    await_end(next);
    auto refusals = record.refusals(known + 2);
    ASSERT_EQ(refusals.size(), known + 2);
    EXPECT_EQ(refusals[known + 1].cause, fault::not_tls);
  }
}

// -- begin and end ------------------------------------------------------------

TEST_F(door_test, refuses_a_port_that_is_taken) {
  open();
  door_record other;
  auto args = other.args(certificates.driver_identity());
  args.port = port();
  auto second = door::open(std::move(args));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ec::conflict);
}

TEST_F(door_test, closes_at_once_with_connections_under_way) {
  open();
  auto silent = connect_to_port(port());
  door_client agent{port(), certificates.agent_identity()};
  ASSERT_TRUE(agent.enter());
  auto accepted = record.next_client();
  opened.reset();
  await_end(silent);
  // Accepted connections belong to others by then.
  EXPECT_TRUE(say(*accepted, "still here"));
  EXPECT_EQ(hear(*agent.channel), "still here");
}

TEST_F(door_test, drops_clients_for_lack_of_memory_says_so_and_takes_others) {
  open([](door_args& x) {
    x.on_refusal = [throws = true,
                    note = x.on_refusal](const door_refusal& refusal) mutable {
      if (std::exchange(throws, false))
        throw std::bad_alloc{};
      note(refusal);
    };
  });
  auto waits = connect_to_port(port());
  auto stranger = connect_to_port(port());
  ::send(stranger.get(), "garbage\n", 8, MSG_NOSIGNAL);
  await_end(stranger);
  await_end(waits);
  auto refusals = record.refusals(1);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].cause, fault::lost);
  EXPECT_THAT(refusals[0].text, HasSubstr("connections wait: "));
  door_client agent{port(), certificates.agent_identity()};
  EXPECT_TRUE(agent.enter()) << agent.channel->failure().text;
}

TEST_F(door_test, stays_open_if_a_handler_always_throws) {
  open([](door_args& x) {
    x.on_refusal = [](const door_refusal&) { throw std::bad_alloc{}; };
  });
  for (int i = 0; i < 3; ++i) {
    auto stranger = connect_to_port(port());
    ASSERT_TRUE(stranger);
    ::send(stranger.get(), "garbage\n", 8, MSG_NOSIGNAL);
    await_end(stranger);
  }
  door_client agent{port(), certificates.agent_identity()};
  EXPECT_TRUE(agent.enter()) << agent.channel->failure().text;
}

// -- channels -----------------------------------------------------------------

TEST_F(door_test, does_not_take_another_connection_s_error_for_one_of_its_own) {
  open();
  door_client agent{port(), certificates.agent_identity()};
  ASSERT_TRUE(agent.enter());
  auto accepted = record.next_client();
  ERR_raise(ERR_LIB_SSL, SSL_R_HTTP_REQUEST);
  std::array<std::byte, 8> buffer;
  EXPECT_EQ(agent.channel->read(buffer).what,
            tls_channel::progress::wants_read);
  EXPECT_TRUE(say(*accepted, "fine"));
  ERR_raise(ERR_LIB_SSL, SSL_R_HTTP_REQUEST);
  EXPECT_EQ(hear(*agent.channel), "fine");
}

TEST_F(door_test, reports_a_connection_that_breaks) {
  open();
  door_client agent{port(), certificates.agent_identity()};
  ASSERT_TRUE(agent.enter());
  auto accepted = record.next_client();
  linger reset{1, 0};
  ::setsockopt(agent.channel->socket(), SOL_SOCKET, SO_LINGER, &reset,
               sizeof(reset));
  agent.channel.reset();
  EXPECT_EQ(hear(*accepted), "");
  EXPECT_EQ(accepted->failure().cause, fault::lost);
  EXPECT_FALSE(say(*accepted, "anyone?"));
}

} // namespace

} // namespace troupe::internal::test
