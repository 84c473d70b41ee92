#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/transport/frame_guard.hpp"
#include "troupe/callbacks/callback_list.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/run/callback_turns.hpp"
#include "troupe/runtime/run/callback_watchdog.hpp"
#include "troupe/runtime/values/run_context.hpp"

namespace troupe::internal {

// -- callbacks that are classes

struct callback_runner_args {
  std::shared_ptr<callback_list> callbacks;
  run_control control; ///< What they act on the run with.
};

/// Behavior of the actor that calls the classes, for the chain. Spawn it
/// detached: callbacks may block.
run_observer_actor::behavior_type
callback_runner(run_observer_actor::stateful_pointer<run_context> self,
                callback_runner_args args);

// -- the chain

/// What callbacks get.
using callback_event =
  std::variant<before_run, after_report, after_exception, after_run,
               state_changed, group_started, group_ended>;

/// The size of *x* in a message if that is more than *longest* bytes.
std::optional<std::size_t> size_above(std::size_t longest,
                                      const callback_event& x);

/// Largest message to another process; the rest is for headers.
inline constexpr std::size_t longest_message =
  frame_guard::max_payload - 64 * 1024;

/// A user's actor with the name that errors call it by.
struct named_callback_actor {
  std::string name;
  user_callback_actor actor;
  bool observes = false; ///< It is a `run_observer_actor`.
};

/// Reports which callbacks of a run did not answer, and whether one was left
/// behind. Any thread.
struct callback_patience {
  std::chrono::milliseconds timeout{0}; ///< Zero: none is named.
  std::optional<std::chrono::milliseconds> limit;
  /// Receives human-readable notes; may be empty.
  std::function<void(std::string)> note;
  /// Set once the thread of the classes was left behind.
  std::shared_ptr<std::atomic<bool>> left_behind;
};

struct callback_chain_args {
  run_observer_actor classes; ///< Those that are classes; invalid: none. Ends
                              ///< with the chain.
  std::vector<named_callback_actor> actors;
  troupe::callback_errors callback_errors = troupe::callback_errors::log;
  callback_patience patience;
  std::shared_ptr<callback_watch> watch; ///< Of the classes.
  /// Largest message to an actor in another process.
  std::size_t longest_message = internal::longest_message;
  /// Shows how late a timer fires: the driver may have been stopped.
  std::function<std::chrono::steady_clock::time_point()> now =
    std::chrono::steady_clock::now;
};

/// What the chain remembers between messages.
struct callback_chain_state {
  static inline constexpr auto name = "callback-chain";

  using pointer = run_observer_actor::stateful_pointer<callback_chain_state>;
  using event = callback_event;
  using time_point = caf::actor_clock::time_point;

  /// An event under way along the chain, or one that waits for its turn.
  struct round {
    event what;
    caf::typed_response_promise<callback_done> promise;
  };

  void set_up(pointer own, callback_chain_args given);
  caf::result<callback_done> add(event x);
  void begin();
  /// Calls the next callback, also of the next events, and answers for events
  /// that are over.
  void call_next();
  /// Returns whether the call is under way.
  bool call(const callback_turns::turn& x);
  void call_classes(std::uint64_t turn);
  void call_actor(std::uint64_t turn, std::size_t position);
  /// Why the current event cannot be sent to the actor at *position*; its
  /// connection would not survive that. Empty: it can.
  std::string too_large_for(std::size_t position) const;
  void answered(callback_done x);
  void refused(std::size_t position, const caf::error& reason);
  void lose(std::size_t position, const caf::error& reason);
  void end_turn();

  // -- those that do not answer
  void watch_turn();
  void check_turn();
  void give_up(const std::string& waited);
  callback_turns::running_class running_class() const;
  time_point now() const { return self->clock().now(); }

  pointer self = nullptr;
  callback_chain_args args;
  callback_turns turns;
  std::deque<round> rounds; ///< The first one has begun.
  callback_watchdog watchdog;
  bool watchdog_is_set = false;
};

/// Behavior of a USER CALLBACK actor that hands each event to the classes and
/// then to the user's own actors, one after the other: the next event waits
/// until all have answered. No handler waits.
///
/// One that does not answer is named after each `timeout`; after `limit` it has
/// failed, later events skip it and its late answers are dropped. The classes
/// share one thread: they are left behind together.
///
/// An actor that answers with an error has failed like a class that throws. One
/// that has ended, or whose connection is lost, has failed once, and later
/// events skip it.
run_observer_actor::behavior_type
callback_chain(callback_chain_state::pointer self, callback_chain_args args);

} // namespace troupe::internal
