#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/run/callback_time.hpp"
#include "troupe/runtime/run/run_state.hpp"

namespace troupe {

/// How a run is.
struct run_status {
  run_state state = run_state::initializing;
  std::uint64_t attempt = 0;
  int world_size = 0;
  std::uint64_t reports = 0; ///< Complete batches over the whole run.
  std::optional<std::uint64_t> last_report; ///< Index of the last batch.
  double reports_per_second = 0;            ///< Over the last few seconds.
  metrics last_metrics;                     ///< Rank 0's of the last batch.
  double elapsed_s = 0;             ///< Seconds since this driver life began.
  std::uint64_t callback_queue = 0; ///< Batches that wait for callbacks.
  double callback_s = 0;            ///< Seconds spent in callbacks so far.
  /// The same per callback, in the order of their calls: classes, then actors.
  std::vector<callback_time> callbacks;
  /// What was said last about ranks that let others wait; empty: none do, or
  /// not for long.
  std::string waits;

  bool operator==(const run_status&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, run_status& x) {
  auto get = [&x] { return static_cast<std::uint8_t>(x.state); };
  auto set = [&x](std::uint8_t state) {
    x.state = static_cast<run_state>(state);
    return state <= static_cast<std::uint8_t>(run_state::preempted);
  };
  return f.object(x).fields(
    f.field("state", get, set), f.field("attempt", x.attempt),
    f.field("world_size", x.world_size), f.field("reports", x.reports),
    f.field("last_report", x.last_report),
    f.field("reports_per_second", x.reports_per_second),
    f.field("last_metrics", x.last_metrics), f.field("elapsed_s", x.elapsed_s),
    f.field("callback_queue", x.callback_queue),
    f.field("callback_s", x.callback_s), f.field("callbacks", x.callbacks),
    f.field("waits", x.waits));
}

} // namespace troupe
