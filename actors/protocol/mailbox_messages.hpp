#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <caf/actor.hpp>
#include <caf/message.hpp>
#include <caf/result.hpp>
#include <caf/typed_actor.hpp>

#include "troupe/actors/protocol/shared_bytes.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"

// How user-defined messages reach the loops of ranks. Senders know only a
// rank's MAILBOX RELAY, an actor in the driver's process. It forwards to the
// rank's POSTBOX, an actor in the rank.

namespace troupe {

/// Subscribes an actor, whose handle is sent along, to the ranks' mailboxes.
struct follow_ranks {};

TROUPE_INSPECT(follow_ranks)

/// The ranks that take messages now, by rank. Sent whenever a rank has opened
/// its mailbox or has left; without ranks when the attempt is over.
struct ranks_changed {
  std::string run_id; ///< `run_context::id`.
  std::uint64_t attempt = 0;
  int world_size = 1;
  std::map<int, caf::actor> ranks;

  /// Whether every rank takes messages.
  bool is_complete() const noexcept {
    return ranks.size() == static_cast<std::size_t>(world_size);
  }
};

TROUPE_INSPECT(ranks_changed, run_id, attempt, world_size, ranks)

/// An actor that sends messages to ranks, and so follows who they are.
using rank_observer_actor = caf::typed_actor<caf::result<void>(ranks_changed)>;

namespace internal {

/// *rank* takes messages. Travels with its postbox; the answer is its relay.
struct open_mailbox {
  std::uint64_t attempt = 0;
  int rank = 0;
  int world_size = 1;         ///< Of the attempt.
  std::uint64_t capacity = 1; ///< Messages that may wait for its loop.
  bool is_near = false; ///< On the driver's host; the worker group knows it.
};

TROUPE_INSPECT(open_mailbox, attempt, rank, world_size, capacity, is_near)

/// A message of a user, on its way to the loop.
struct mail {
  std::uint64_t id = 0;
  bool wants_answer = false;
  bool is_near = false;  ///< The rank is on the host of its relay.
  caf::message body;     ///< Empty: the rank cannot read it.
  shared_hold hold = {}; ///< On what *body* shares; it does not travel.
};

template <class Inspector>
bool inspect(Inspector& f, mail& x) {
  auto head = f.object(x).fields(f.field("id", x.id),
                                 f.field("wants_answer", x.wants_answer),
                                 f.field("is_near", x.is_near));
  near_scope scope{x.is_near};
  if constexpr (Inspector::is_loading) {
    // The last part of a frame: nothing after it has to be located.
    if (head && !f.apply(x.body))
      x.body = {};
    return head;
  } else {
    return head && f.apply(x.body);
  }
}

/// What the loop answers to the mail *id*.
struct mail_answer {
  std::uint64_t id = 0;
  error refusal; ///< `ec::none`: *body* is the answer.
  caf::message body;
};

TROUPE_INSPECT(mail_answer, id, refusal, body)

/// The loop has taken that many messages since the last time.
struct mail_taken {
  std::uint64_t messages = 0;
};

TROUPE_INSPECT(mail_taken, messages)

/// How many messages that wanted no answer were dropped so far: the mailbox was
/// full, or they were refused.
struct mail_dropped {
  std::uint64_t messages = 0;
};

TROUPE_INSPECT(mail_dropped, messages)

/// The POSTBOX actor: takes messages in a rank and puts them in order for its
/// loop.
using postbox_actor = caf::typed_actor<
  // The relay passes a message on.
  caf::result<void>(mail),
  // The relay had to drop some.
  caf::result<void>(mail_dropped)>;

} // namespace internal

} // namespace troupe
