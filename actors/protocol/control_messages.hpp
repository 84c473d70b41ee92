#pragma once

#include <string>

#include <caf/result.hpp>
#include <caf/typed_actor.hpp>

#include "troupe/actors/protocol/callback_messages.hpp"
#include "troupe/actors/protocol/mailbox_messages.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/inspect_as.hpp"
#include "troupe/runtime/values/run_control.hpp"
#include "troupe/runtime/values/run_status.hpp"

// Requests of any actor to a run under way: run_control.hpp has the rest.

namespace troupe {

/// Asks for the status of the run.
struct get_status {};

TROUPE_INSPECT(get_status)

/// Subscribes an actor, whose handle is sent along, to the run.
struct follow_run {};

TROUPE_INSPECT(follow_run)

/// A run under way, for actors of this process and others. A run that is over
/// answers nothing: requests fail with `caf::sec::request_receiver_down`.
using run_control_actor = caf::typed_actor<
  // Ends the run in one of three ways.
  caf::result<void>(finish_run), caf::result<void>(preempt_run),
  caf::result<void>(abort_run),
  // Changes how many calls to callbacks may be without an answer.
  caf::result<void>(resize_callback_queue),
  // Answers at once from memory.
  caf::result<run_status>(get_status),
  // From now on the actor gets what callbacks get, first `before_run`. The run
  // does not wait for its answers: while 64 are open, it gets no reports, so
  // their indices may have gaps. It obeys an order in an answer.
  caf::result<run_status>(follow_run, run_observer_actor),
  // From now on the actor learns which ranks take messages; the answer says
  // which do now.
  caf::result<ranks_changed>(follow_ranks, rank_observer_actor)>;

/// A run is closed: its trackers and logs are complete and its name is free.
/// Sent after `after_run`, once for each `run_handle::when_closed`, however the
/// run ended.
struct run_closed {
  std::string run_id; ///< `run_context::id`.
  fs::path path;      ///< Folder of the run, for `result::from_path`.
};

template <class Inspector>
bool inspect(Inspector& f, run_closed& x) {
  return f.object(x).fields(f.field("run_id", x.run_id),
                            internal::path_field(f, "path", x.path));
}

/// An actor that learns when runs are closed.
using run_closed_actor = caf::typed_actor<caf::result<void>(run_closed)>;

} // namespace troupe
