#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe {
struct result;
} // namespace troupe

namespace troupe::internal {

/// Seconds, human-readable: "4.2 s", "1:05", "2:00:09".
std::string elapsed_text(double seconds);

/// State, attempt and number of ranks: "running, attempt 0, 2 ranks".
std::string state_text(const run_status& x);

/// The last report, with the metrics that fit into *columns*:
/// "report 12, 3.4/s, 1:05: loss=0.3". Below one in ten seconds the rate is a
/// time: "one in 6:48".
std::string report_text(const run_status& x, int columns);

/// How far rank 0 is in its epoch: "epoch 0: 120/234, 1:20 left".
std::string progress_text(const epoch_progress& x);

/// The complete status after *elapsed_s* seconds, the most important parts
/// first.
std::string live_text(const run_status& x, double elapsed_s, int columns);

run_state end_state_of(run_status_kind x);

/// The end of a run in words.
struct run_summary {
  run_state outcome = run_state::finished;
  std::string name;
  std::uint64_t reports = 0;  ///< Complete reports over the whole run.
  std::uint64_t attempts = 1; ///< Attempts begun.
  double elapsed_s = 0;       ///< Seconds.
  metrics last_metrics;       ///< Of rank 0, from the last report.
  std::optional<std::string> best_checkpoint; ///< Its folder.
  std::string path;                           ///< Folder of the run.
  error reason; ///< Why it did not finish; may have several lines.
};

/// The summary of *x*, a run of *reports* reports over *elapsed_s* seconds.
run_summary summary_of(const result& x, std::uint64_t reports,
                       double elapsed_s);

/// Several lines, each ended by a newline.
std::string to_string(const run_summary& x);

} // namespace troupe::internal
