#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <caf/result.hpp>
#include <caf/typed_actor.hpp>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/values/callback_done.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/runtime/values/run_status.hpp"

// What the driver sends to the actors that follow its run, and to its USER
// CALLBACK, which passes it on to the callbacks of users; and what they answer.
// Each message names its run by `run_context::id`, so that one actor can follow
// several.

namespace troupe {

/// The run begins; attempt and world size are those of the first attempt to
/// come. The only message with the whole context: keep what you need of it.
struct before_run {
  run_context run;
};

TROUPE_INSPECT(before_run, run)

/// Every rank has delivered report `index`. Sent in order of index, exactly
/// once per driver.
struct after_report {
  std::string run_id;
  std::uint64_t index = 0;
  std::uint64_t attempt = 0;
  std::vector<metrics> values; ///< One entry per rank, ordered by rank.
  std::optional<troupe::checkpoint> checkpoint; ///< If it saved one.
};

TROUPE_INSPECT(after_report, run_id, index, attempt, values, checkpoint)

/// Ranks failed; sent before the driver acts on it.
struct after_exception {
  std::string run_id;
  std::uint64_t attempt = 0;
  std::map<int, rank_failure> ranks;
};

TROUPE_INSPECT(after_exception, run_id, attempt, ranks)

/// The run went from one state to another.
struct state_changed {
  std::string run_id;
  std::uint64_t attempt = 0; ///< The current one; between two the next.
  run_state from = run_state::initializing;
  run_state to = run_state::initializing;
};

TROUPE_INSPECT(state_changed, run_id, attempt, from, to)

/// Every rank of an attempt runs its loop.
struct group_started {
  std::string run_id;
  std::uint64_t attempt = 0;
  int world_size = 0;
};

TROUPE_INSPECT(group_started, run_id, attempt, world_size)

/// Every rank of an attempt is gone, also of one that did not come up.
struct group_ended {
  std::string run_id;
  std::uint64_t attempt = 0;
  error reason; ///< `ec::none`: all loops returned. `ec::stopped`: as asked.
};

TROUPE_INSPECT(group_ended, run_id, attempt, reason)

/// The run is over, however it ended.
struct after_run {
  std::string run_id;
  result outcome;
};

TROUPE_INSPECT(after_run, run_id, outcome)

/// A callback that is an actor of the user's: receives the events of runs,
/// those of each in order.
using user_callback_actor = caf::typed_actor<
  // The run begins.
  caf::result<callback_done>(before_run),
  // Metrics of all ranks and the checkpoint, once per index.
  caf::result<callback_done>(after_report),
  // Ranks failed.
  caf::result<callback_done>(after_exception),
  // The run is over.
  caf::result<callback_done>(after_run)>;

/// The same for actors that also see how the run and its ranks come and go: the
/// USER CALLBACK actor, its CALLBACK RUNNER, and those that follow a run.
using run_observer_actor = caf::typed_actor<
  // As above.
  caf::result<callback_done>(before_run),
  caf::result<callback_done>(after_report),
  caf::result<callback_done>(after_exception),
  caf::result<callback_done>(after_run),
  // The run has another state.
  caf::result<callback_done>(state_changed),
  // The ranks of an attempt run, or are gone.
  caf::result<callback_done>(group_started),
  caf::result<callback_done>(group_ended)>;

} // namespace troupe
