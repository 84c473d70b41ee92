#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "tests/support/tcp.hpp"
#include "troupe/actors/door/certificates.hpp"
#include "troupe/actors/door/door.hpp"
#include "troupe/actors/door/tls_channel.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

/// Long enough for a busy machine; only a failing test waits for it.
constexpr auto door_patience = std::chrono::seconds{30};

/// A run's authority and the credentials of both sides.
struct door_certificates {
  door_certificates() {
    certificate_terms terms;
    terms.name = "driver.run1";
    driver = *authority.issue(terms);
    terms.name = "agent.run1";
    agent = *authority.issue(terms);
  }

  tls_identity driver_identity() const {
    return *tls_identity::make(driver, host_role::driver, "run1");
  }

  tls_identity agent_identity() const { return identity_of(agent); }

  /// An agent that shows *own*.
  static tls_identity identity_of(const credentials& own) {
    return *tls_identity::make(own, host_role::agent, "run1");
  }

  certificate_authority authority = *certificate_authority::make("run1");
  credentials driver;
  credentials agent;
};

/// What the handlers of a door got, from its thread.
class door_record {
public:
  door_args args(tls_identity own) {
    door_args result{std::move(own), {}, {}};
    result.on_client = [this](std::unique_ptr<tls_channel> x,
                              const door_greeting&) {
      std::lock_guard guard{mutex_};
      clients_.push_back(std::move(x));
      changed_.notify_all();
    };
    result.on_refusal = [this](const door_refusal& x) {
      std::lock_guard guard{mutex_};
      refusals_.push_back(x);
      changed_.notify_all();
    };
    return result;
  }

  /// The next connection that was accepted; null if none comes.
  std::unique_ptr<tls_channel> next_client() {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, door_patience,
                           [this] { return !clients_.empty(); }))
      return nullptr;
    auto result = std::move(clients_.front());
    clients_.erase(clients_.begin());
    return result;
  }

  /// All refusals, as soon as there are *n*.
  std::vector<door_refusal> refusals(std::size_t n) {
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, door_patience,
                      [&] { return refusals_.size() >= n; });
    return refusals_;
  }

  /// Clients that `next_client` has not returned yet.
  std::size_t waiting_clients() {
    std::lock_guard guard{mutex_};
    return clients_.size();
  }

  /// The cause of the first refusal.
  channel_fault first_cause() {
    auto found = refusals(1);
    return found.empty() ? channel_fault::none : found.front().cause;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<tls_channel>> clients_;
  std::vector<door_refusal> refusals_;
};

/// Calls *step* of *x* until it is done or has failed.
template <class Step>
tls_channel::progress finish_step(tls_channel& x, Step step) {
  for (;;) {
    auto result = step();
    if (result != tls_channel::progress::wants_read
        && result != tls_channel::progress::wants_write)
      return result;
    short events =
      result == tls_channel::progress::wants_read ? POLLIN : POLLOUT;
    pollfd wait{x.socket(), events, 0};
    auto limit = std::chrono::milliseconds{door_patience};
    if (::poll(&wait, 1, static_cast<int>(limit.count())) <= 0)
      return result;
  }
}

/// Sends *text*, shorter than any buffer.
inline bool say(tls_channel& x, const std::string& text) {
  return finish_step(
           x, [&] { return x.write(std::as_bytes(std::span{text})).what; })
         == tls_channel::progress::done;
}

/// What *x* receives next; empty if it fails.
inline std::string hear(tls_channel& x) {
  std::array<std::byte, 1024> buffer;
  std::size_t size = 0;
  finish_step(x, [&] {
    auto result = x.read(buffer);
    size = result.size;
    return result.what;
  });
  return {reinterpret_cast<const char*>(buffer.data()), size};
}

/// As it is sent.
inline std::string text_of(const door_greeting& x) {
  auto bytes = encode(x);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A client of a door.
struct door_client {
  door_client(std::uint16_t port, const tls_identity& own)
    : channel(*tls_channel::make(own, connect_to_port(port),
                                 tls_channel::side::client)) {}

  /// Greets. Returns whether the door has accepted it.
  bool enter(const std::string& greeting = text_of(door_greeting{})) {
    return finish_step(*channel, [this] { return channel->shake_hands(); })
             == tls_channel::progress::done
           && say(*channel, greeting) && hear(*channel) == "T";
  }

  std::unique_ptr<tls_channel> channel;
};

/// A door with the certificates of a run.
class door_test : public testing::Test {
protected:
  /// Opens it with what *change* made of its arguments.
  template <class Change>
  void open(Change change) {
    auto args = record.args(certificates.driver_identity());
    change(args);
    auto made = door::open(std::move(args));
    ASSERT_TRUE(made) << made.error().message;
    opened.emplace(std::move(*made));
  }

  void open() {
    open([](door_args&) {});
  }

  std::uint16_t port() const { return (*opened)->port(); }

  door_certificates certificates;
  door_record record;
  std::optional<owned_ptr<door>> opened; // the first to be destroyed
};

} // namespace troupe::internal::test
