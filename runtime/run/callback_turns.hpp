#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/values/callback_done.hpp"

namespace troupe::internal {

/// Decides which callbacks of a run are called for an event, and what their
/// answers add up to: first those that are classes, together, then the user's
/// actors, one after the other.
///
/// Its owner begins an event, calls whom `next` names until it names no one,
/// and takes the outcome.
///
/// Invariants (the tests cite them by name):
///   CT-1  Events about the states of the run go to observers only, all others
///         to each callback, also if one of them ends the run.
///   CT-2  One that answers with failures gets later events.
///   CT-3  One that ends has failed once: an error in its last answer is that
///         failure, and an end between two events counts with the next. Later
///         events skip it.
///   CT-4  One that is given up has failed, and later events skip it. The
///         classes share one thread: they are given up together.
///   CT-5  A turn ends once. An answer that comes later is not awaited.
class callback_turns {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// One of the user's actors.
  struct actor {
    std::string name;
    bool observes = false; ///< It gets all events.
  };

  struct event {
    std::string_view hook; ///< A literal, for messages.
    bool is_for_observers = false;
  };

  /// Who is to be called.
  struct turn {
    std::uint64_t number = 0;
    std::optional<std::size_t> actor; ///< By position; unset: the classes.
  };

  /// The class that is being called, for messages. Empty: it is not known.
  struct running_class {
    std::string who;  ///< "callback 2 (name)"
    std::string text; ///< The same with its hook.
  };

  callback_turns() = default;

  /// *aborts*: the run ends if an actor fails. The classes say so themselves.
  callback_turns(std::vector<actor> actors, bool has_classes, bool aborts);

  void begin(const event& x);

  /// Opens the next turn; nothing: the event is over.
  std::optional<turn> next(time_point now);

  /// Whether the turn *number* is open.
  bool awaits(std::uint64_t number) const noexcept {
    return open_ && open_->number == number;
  }

  // -- the ends of the open turn

  void classes_answered(callback_done x);
  void answered(callback_done x, time_point now);

  /// The event was not sent, because it *why* ("takes 20 bytes, and ...").
  void not_called(const std::string& why, time_point now);

  /// *waited*, such as "50 s", is over the limit: continues without
  /// those that it waited for. Returns whether those are the classes.
  bool give_up(const std::string& waited, const running_class& x,
               time_point now);

  /// The actor at *position* is gone; *how* says that ("has ended"). Returns
  /// whether that ends the open turn.
  bool lost(std::size_t position, const std::string& how, time_point now);

  /// Describes who is called in the open turn.
  std::string current(const running_class& x) const;

  /// Ends the event.
  callback_done take_outcome() { return std::exchange(outcome_, {}); }

private:
  struct actor_state {
    actor who;
    bool gone = false;
    bool refused = false; ///< Its last answer had failures.
    error reason; ///< Why it has ended, until that was counted as a failure.
  };

  turn open(std::optional<std::size_t> whom, time_point now);
  /// Ends the turn of an actor.
  void close(std::vector<error> failures, time_point now);
  void fail(std::vector<error> failures);
  void skip(std::string who);
  std::string name_of(std::size_t position) const;

  std::vector<actor_state> actors_;
  bool has_classes_ = false;
  bool aborts_ = false;
  std::string left_classes_; ///< Those that were given up; empty: none.
  event event_;
  callback_done outcome_;
  bool classes_are_next_ = false;
  std::size_t next_actor_ = 0; ///< The current one while its turn is open.
  std::optional<turn> open_;
  std::uint64_t turns_ = 0;
  time_point opened_{};
};

} // namespace troupe::internal
