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
#include "troupe/runtime/run/callback_watchdog.hpp"
#include "troupe/runtime/values/run_context.hpp"

namespace troupe::internal {

// -- callbacks that are classes

struct user_callback_args {
  std::shared_ptr<callback_list> callbacks;
  run_control control; ///< What they act on the run with.
};

/// Behavior of the actor that calls the classes, for the chain. Spawn it
/// detached: callbacks may block.
run_observer_actor::behavior_type
callback_runner(run_observer_actor::stateful_pointer<run_context> self,
                user_callback_args args);

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

  /// One of the user's actors.
  struct link {
    named_callback_actor who;
    bool gone = false;
    bool refused = false; ///< Its last answer was an error.
    error reason; ///< Why it has ended, until that was counted as a failure.
  };

  /// An event under way along the chain.
  struct round {
    event what;
    caf::typed_response_promise<callback_done> promise;
    callback_done answer;
  };

  caf::result<callback_done> add(event x);

  /// An answer is open: watches how long it takes.
  void open_turn();
  void close_turn();
  void watch_turn();
  void check_turn();
  /// The turn has exceeded its limit: continues without the current callback.
  void give_up(const std::string& waited);
  std::string current_callback() const;

  /// Begins the first waiting round. Returns whether the classes are called.
  bool begin();
  void call_classes();
  void classes_answered(callback_done x);
  /// Continues with the current actor, and with the next rounds, until an actor
  /// is called.
  void call_next();
  /// Calls the current actor or one after it; false if none is left.
  bool ask_link();
  bool ask(link& x);
  /// Why the current event cannot be sent to *x*; its connection would not
  /// survive that.
  error too_large_for(const link& x);
  void answered(callback_done x);
  void refused(const caf::error& reason);
  void lose(std::size_t position, const caf::error& reason);
  void fail(std::vector<error> failures);
  /// *who* is not called in this round, or did not return from its call.
  void skip(std::string who);
  void end_turn(std::vector<error> failures);

  pointer self = nullptr;
  callback_chain_args args;
  run_observer_actor classes; ///< Invalid: there are none, or no more.
  std::vector<link> links;
  std::deque<round> rounds;
  std::size_t current = 0; ///< Of the links: whose turn it is.
  std::uint64_t turn = 0;  ///< Number of the open call.
  bool waiting = false;    ///< For the answer of link `current`.
  bool calling_classes = false;
  std::string left_classes; ///< The class that was left behind; empty: none.
  callback_watchdog watchdog;
  bool watchdog_is_set = false;
  time_point called_at;
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
