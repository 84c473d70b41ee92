#pragma once

#include <deque>
#include <string>
#include <variant>
#include <vector>

#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/config/run_config.hpp"

namespace troupe {

/// A user's actor with the name that errors call it by.
struct named_callback_actor {
  std::string name;
  user_callback_actor actor;
};

struct callback_chain_args {
  user_callback_actor classes; ///< Those that are classes; invalid: none. Ends
                               ///< with the chain.
  std::vector<named_callback_actor> actors;
  troupe::callback_errors callback_errors = troupe::callback_errors::log;
};

/// What the chain remembers between messages.
struct callback_chain_state {
  static inline constexpr auto name = "callback-chain";

  using pointer = user_callback_actor::stateful_pointer<callback_chain_state>;
  using event =
    std::variant<before_run, after_report, after_exception, after_run>;
  using time_point = caf::actor_clock::time_point;

  /// One actor of the user's.
  struct link {
    named_callback_actor who;
    bool gone = false;
    bool refused = false; ///< Its last answer was an error.
    error reason; ///< Why it is gone, until that was counted as a failure.
  };

  /// An event on its way along the chain.
  struct round {
    event what;
    caf::typed_response_promise<callback_done> promise;
    callback_done answer;
  };

  caf::result<callback_done> add(event x);

  /// Begins with the first round that waits.
  void begin();
  void ask_classes();
  /// Goes on with the current actor; ends the round after the last.
  void ask_next();
  void ask(link& x);
  void answered(std::vector<error> failures);
  void refused(const caf::error& reason);
  void lose(std::size_t position, const caf::error& reason);
  void fail(std::vector<error> failures);
  void end_turn(std::vector<error> failures);

  pointer self = nullptr;
  callback_chain_args args;
  std::vector<link> links;
  std::deque<round> rounds;
  std::size_t current = 0; ///< Of the links: whose turn it is.
  std::uint64_t turn = 0;  ///< Number of the question that is open.
  bool waiting = false;    ///< For the answer of link `current`.
  time_point asked_at;
};

/// Behavior of a USER CALLBACK actor that hands each event to the classes and
/// then to the user's own actors, one after the other: the next event waits
/// until all have answered. Waits for nobody inside a handler.
///
/// An actor that answers an error has failed like a class that throws. One that
/// has ended, or whose connection has gone, has failed once, and the later
/// events go on without it.
user_callback_actor::behavior_type
callback_chain(callback_chain_state::pointer self, callback_chain_args args);

} // namespace troupe
