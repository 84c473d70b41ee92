#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "troupe/trainers/ring/host_ring.hpp"
#include "troupe/trainers/ring/join_ring.hpp"

namespace troupe::internal::test {

/// Long enough for a busy machine; only a failing test waits for it.
constexpr auto ring_patience = std::chrono::seconds{60};

inline std::shared_ptr<link_security> security_of(bool encrypted) {
#ifdef TROUPE_TEST_TLS
  static auto credentials = *make_link_credentials("run1");
  if (encrypted)
    return *encrypted_links(credentials, "run1");
#endif
  EXPECT_FALSE(encrypted);
  return plain_links();
}

/// The ports of hosts "a", "b", ... with two ranks each, and what the store
/// holds about them.
struct ring_ports {
  ring_ports(std::size_t hosts, bool encrypted,
             const std::string& address = "127.0.0.1") {
    for (std::size_t i = 0; i < hosts; ++i) {
      ports.push_back(*ring_port::open(address));
      auto& port = ports.back();
      ring_leader leader;
      leader.host = {std::string(1, static_cast<char>('a' + i)),
                     static_cast<int>(2 * i), 2};
      leader.address = address;
      leader.port = port.port();
      leader.token = port.token();
      leader.encrypted = encrypted;
      leaders.push_back(*decode_leader(encode(leader)));
    }
  }

  std::vector<ring_host> hosts() const {
    std::vector<ring_host> result;
    for (auto& leader : leaders)
      result.push_back(leader.host);
    return result;
  }

  expected<ring_links> join(std::size_t index,
                            std::chrono::milliseconds limit = ring_patience) {
    join_ring_args args;
    args.security = security_of(leaders[index].encrypted);
    args.limit = limit;
    return join_ring(ports[index], leaders, index, args);
  }

  /// Host *index* in the ring of all.
  std::unique_ptr<host_ring> ring(std::size_t index) {
    auto links = join(index);
    EXPECT_TRUE(links) << links.error().message;
    return std::make_unique<host_ring>(
      hosts(), index, std::move(links->next), std::move(links->previous),
      [](const ring_note& x) {
        return "collective " + std::to_string(std::to_integer<int>(x[0]));
      });
  }

  std::vector<ring_port> ports;
  std::vector<ring_leader> leaders;
};

/// Runs *body* for each of *count* hosts on a thread of its own.
inline void on_hosts(std::size_t count,
                     const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&body, i] { body(i); });
  for (auto& thread : threads)
    thread.join();
}

/// Of collective *number*, for which others have *timeout*.
inline host_ring::call
call_number(int number, std::chrono::milliseconds timeout = ring_patience) {
  host_ring::call result;
  result.note[0] = static_cast<std::byte>(number);
  result.timeout = timeout;
  result.deadline = host_ring::clock::now() + timeout;
  return result;
}

} // namespace troupe::internal::test
