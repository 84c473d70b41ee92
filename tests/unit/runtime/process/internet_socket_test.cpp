#include "troupe/runtime/process/internet_socket.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <vector>

namespace troupe::internal {
namespace {

endpoint loopback(std::uint16_t port) {
  return resolve("127.0.0.1", port, host_kind::number).value().front();
}

/// Connects to *port* and returns the number of the error, or 0.
int call(std::uint16_t port) {
  auto socket = begin_connect(loopback(port));
  if (!socket)
    return socket.error();
  pollfd wait{socket->get(), POLLOUT, 0};
  ::poll(&wait, 1, 10'000);
  return wait.revents == 0 ? ETIMEDOUT : connect_error(socket->get());
}

TEST(internet_socket_test, connects_to_the_port_that_it_listens_at) {
  auto port = listen_at(loopback(0), 1, "no port").value();
  EXPECT_NE(port.port, 0);
  EXPECT_EQ(call(port.port), 0);
  auto own = endpoint::local(port.socket.get()).value();
  EXPECT_EQ(own.text(), "127.0.0.1");
  EXPECT_EQ(own.port(), port.port);
  EXPECT_FALSE(endpoint::remote(port.socket.get()));
}

TEST(internet_socket_test, says_why_it_could_not_connect) {
  auto port = listen_at(loopback(0), 1, "no port").value();
  port.socket.reset();
  EXPECT_EQ(call(port.port), ECONNREFUSED);
}

TEST(internet_socket_test, tells_a_taken_port_from_an_address_of_another_host) {
  auto port = listen_at(loopback(0), 1, "no port").value();
  auto taken = listen_at(loopback(port.port), 1, "cannot listen");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ec::conflict);
  EXPECT_EQ(taken.error().message, "cannot listen: Address already in use");
  auto other = resolve("192.0.2.1", 0, host_kind::number).value().front();
  EXPECT_EQ(listen_at(other, 1, "").error().code, ec::invalid_config);
}

TEST(internet_socket_test, shows_clients_of_ipv4_as_such_at_a_socket_for_both) {
  auto port = listen_at(endpoint::any(AF_INET6, 0), 1, "no port");
  if (!port)
    GTEST_SKIP() << "this host has no IPv6: " << port.error().message;
  auto client = begin_connect(loopback(port->port)).value();
  pollfd wait{port->socket.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&wait, 1, 10'000), 1);
  unique_fd server{::accept(port->socket.get(), nullptr, nullptr)};
  EXPECT_EQ(endpoint::remote(server.get()).value().text(), "127.0.0.1");
  EXPECT_EQ(endpoint::any(AF_INET6, 7).text(), "::");
}

TEST(internet_socket_test, takes_a_number_only_where_a_name_may_be_wrong) {
  EXPECT_EQ(resolve("localhost", 1, host_kind::number).error().code,
            ec::invalid_config);
  EXPECT_FALSE(resolve("", 1, host_kind::any));
  auto both = resolve("::1", 80, host_kind::any).value();
  EXPECT_EQ(both.front().text(), "::1");
  EXPECT_EQ(both.front().port(), 80);
  EXPECT_TRUE(resolve("localhost", 1, host_kind::any));
}

TEST(internet_socket_test, one_of_the_address_with_the_most_leaves) {
  std::vector<unknown_caller> all{{"a", true}, {"b", false}, {"b", false}};
  EXPECT_EQ(choose_leaver(all), 1u) << "the oldest of b";
  all.push_back({"b", true});
  EXPECT_EQ(choose_leaver(all), 3u) << "the silent one of b";
  all.push_back({"b", true});
  EXPECT_EQ(choose_leaver(all), 3u) << "the oldest silent one of b";
}

TEST(internet_socket_test,
     a_silent_caller_leaves_if_all_addresses_have_as_many) {
  std::vector<unknown_caller> all{{"a", false}, {"b", true}, {"c", true}};
  EXPECT_EQ(choose_leaver(all), 1u);
  all[1].is_silent = all[2].is_silent = false;
  EXPECT_EQ(choose_leaver(all), 0u);
}

} // namespace
} // namespace troupe::internal
