#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <variant>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <gtest/gtest.h>

#include "tests/support/manual_scheduler.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal::test {

/// What an actor has answered so far.
template <class T>
struct answer {
  using value_type = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  std::optional<value_type> value;
  error failure;

  bool pending() const { return !value && !failure; }
};

/// An actor system whose actors run on the test's thread when the test says so,
/// and whose clock is advanced by hand.
class stepped_system {
public:
  ~stepped_system() {
    held_.clear();
    for (auto& end : ends_)
      end();
    settle();
    scheduler_.drop_timers();
  }

  caf::actor_system& operator*() { return *system_; }

  /// Spawns an actor that ends with the test at the latest.
  template <class Behavior, class... Ts>
  auto spawn(Behavior behavior, Ts&&... xs) {
    auto result = system_->spawn(behavior, std::forward<Ts>(xs)...);
    ends_.push_back([weak = caf::actor_cast<caf::actor_addr>(result)] {
      if (auto strong = caf::actor_cast<caf::strong_actor_ptr>(weak))
        caf::anon_send_exit(strong, caf::exit_reason::kill);
    });
    return result;
  }

  /// Runs actors until none has anything to do at this time.
  void settle() {
    auto may_run = [this](caf::resumable* x) { return !held_.contains(x); };
    do {
      scheduler_.run(may_run);
    } while (scheduler_.advance(caf::timespan{0}) > 0
             || scheduler_.can_run(may_run));
  }

  /// Advances the clock.
  void pass(std::chrono::milliseconds time) {
    settle();
    scheduler_.advance(time);
    settle();
  }

  /// Lets *actor* read no message until `release`.
  template <class Handle>
  void hold(const Handle& actor) {
    held_.insert(dynamic_cast<caf::resumable*>(
      caf::actor_cast<caf::abstract_actor*>(actor)));
  }

  void release() {
    held_.clear();
    settle();
  }

  /// Sends a request to *whom* and runs all actors; the answer may come later.
  template <class T, class Handle, class... Ts>
  std::shared_ptr<answer<T>> ask(const Handle& whom, Ts... xs) {
    auto result = std::make_shared<answer<T>>();
    system_->spawn([=](caf::event_based_actor* self) {
      auto failed = [result](caf::error& x) { result->failure = from_caf(x); };
      if constexpr (std::is_void_v<T>)
        request(self, whom, caf::infinite, xs...)
          .then([result] { result->value.emplace(); }, failed);
      else
        request(self, whom, caf::infinite, xs...)
          .then([result](T& x) { result->value = std::move(x); }, failed);
    });
    settle();
    return result;
  }

private:
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_ =
    manual_scheduler::make_system(config_);
  manual_scheduler scheduler_{*system_};
  std::vector<std::function<void()>> ends_;
  std::set<caf::resumable*> held_;
};

} // namespace troupe::internal::test
