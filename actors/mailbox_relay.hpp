#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include <caf/actor.hpp>
#include <caf/behavior.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/result.hpp>
#include <caf/stateful_actor.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/run/mailbox_window.hpp"

namespace troupe::internal {

/// An error if *x*, which errors call *what*, is too long for another process.
expected<void> check_length(caf::actor_system& system, const caf::message& x,
                            const std::string& what);

struct mailbox_relay_args {
  open_mailbox order;
  postbox_actor postbox;
  driver_actor driver;
};

/// What the MAILBOX RELAY remembers between messages.
struct mailbox_relay_state {
  static inline constexpr auto name = "mailbox-relay";

  using pointer = caf::stateful_actor<mailbox_relay_state>*;

  /// A user's message for the loop of the rank.
  caf::result<caf::message> pass_on(caf::message& x);
  void answer(mail_answer& x);
  void taken(const mail_taken& x);
  /// Says to the rank how many messages were dropped, if there are more.
  void tell_drops();
  /// The rank takes no more messages: answers those that wait for its loop.
  void end(const error& reason);
  std::string rank_text() const;
  /// A hold on what *x* shares with the rank, for as long as it takes until
  /// that has it; null: nothing. An error: *x* is too long.
  expected<shared_hold> prepare(const caf::message& x);

  pointer self = nullptr;
  mailbox_relay_args args;
  mailbox_window window{1};
  std::uint64_t next_id = 0;
  std::uint64_t messages_taken = 0;
  /// What the rank maps, with the ids of the messages.
  std::deque<std::pair<std::uint64_t, shared_hold>> held;
  std::map<std::uint64_t, caf::response_promise> unanswered;
};

/// Behavior of the MAILBOX RELAY actor: one rank in one attempt, as all others
/// know it. It passes messages of any type on, one value each, and ends with
/// the mailbox of the rank.
caf::behavior mailbox_relay(mailbox_relay_state::pointer self,
                            mailbox_relay_args args);

} // namespace troupe::internal
