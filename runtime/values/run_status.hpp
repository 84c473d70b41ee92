#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/inspect_as.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// The status of a run on storage. Only a `finished` run is closed: any other
/// is resumed when its name is used again.
enum class run_status_kind : std::uint8_t {
  running,   ///< Not ended yet, or its driver died.
  finished,  ///< Every rank returned from its loop.
  errored,   ///< It failed more often than it may.
  aborted,   ///< It was asked to end at once.
  preempted, ///< It was preempted, with time for a last checkpoint.
};

std::string_view to_string(run_status_kind x) noexcept;

/// The kind called *name*; nothing if there is none.
std::optional<run_status_kind>
run_status_from_string(std::string_view name) noexcept;

template <class Inspector>
bool inspect(Inspector& f, run_status_kind& x) {
  return internal::inspect_enum(f, x, run_status_kind::preempted);
}

/// The state of a run. The last four are final.
enum class run_state : std::uint8_t {
  initializing,  ///< No attempt was made yet.
  scheduling,    ///< A group is being started.
  running,       ///< Every rank runs its loop.
  restarting,    ///< A rank failed; the group ends, another will start.
  rescheduling,  ///< A group failed to start; another will be started.
  shutting_down, ///< The group ends and the run ends.
  finished,
  errored,
  aborted,
  preempted,
};

std::string_view to_string(run_state x) noexcept;

namespace internal {

/// Whether *x* is final.
constexpr bool is_terminal(run_state x) noexcept {
  return x >= run_state::finished;
}

} // namespace internal

template <class Inspector>
bool inspect(Inspector& f, run_state& x) {
  return internal::inspect_enum(f, x, run_state::preempted);
}

/// The time that one callback took.
struct callback_time {
  std::string name;
  double seconds = 0;

  bool operator==(const callback_time&) const = default;
};

namespace internal {

/// Adds a round to the *totals* of the callbacks of a run: one entry per
/// callback, in order. One of both may lack the first ones, which are classes:
/// they were left behind, or did not answer.
inline void add_times(std::vector<callback_time>& totals,
                      const std::vector<callback_time>& round) {
  if (totals.empty()) {
    totals = round;
    return;
  }
  auto n = std::min(totals.size(), round.size());
  auto total = totals.end() - static_cast<std::ptrdiff_t>(n);
  auto added = round.end() - static_cast<std::ptrdiff_t>(n);
  for (; added != round.end(); ++added, ++total)
    total->seconds += added->seconds;
}

} // namespace internal

TROUPE_INSPECT(callback_time, name, seconds)

/// How far rank 0 is in a pass over its data loader.
struct epoch_progress {
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;   ///< Batches done.
  std::uint64_t batches = 0; ///< Of the pass.
  double left_s = 0;         ///< Seconds until it ends, at its pace so far.

  bool operator==(const epoch_progress&) const = default;
};

TROUPE_INSPECT(epoch_progress, epoch, batch, batches, left_s)

/// What `run_handle::status` returns, and the console shows.
struct run_status {
  run_state state = run_state::initializing;
  std::uint64_t attempt = 0;
  int world_size = 0;
  std::uint64_t reports = 0; ///< Complete batches over the whole run.
  std::optional<std::uint64_t> last_report; ///< Index of the last batch.
  double reports_per_second = 0;            ///< Over the last few seconds.
  metrics last_metrics;                     ///< Rank 0's of the last batch.
  double elapsed_s = 0; ///< Seconds since this driver began.
  /// Looked up about once a second; nothing between two passes.
  std::optional<epoch_progress> progress;
  std::uint64_t callback_queue = 0; ///< Calls to callbacks without an answer.
  double callback_s = 0;            ///< Seconds spent in callbacks so far.
  /// The same per callback, in the order of their calls: classes, then actors.
  std::vector<callback_time> callbacks;
  /// The last warning about ranks that keep others waiting; empty: none do, or
  /// not for long.
  std::string waits;

  bool operator==(const run_status&) const = default;
};

TROUPE_INSPECT(run_status, state, attempt, world_size, reports, last_report,
               reports_per_second, last_metrics, elapsed_s, progress,
               callback_queue, callback_s, callbacks, waits)

} // namespace troupe
