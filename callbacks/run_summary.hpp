#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/run/run_state.hpp"

namespace troupe {

struct result;

/// How a run ended, for people.
struct run_summary {
  run_state outcome = run_state::finished;
  std::string name;
  std::uint64_t reports = 0;  ///< Complete batches over the whole run.
  std::uint64_t attempts = 1; ///< Groups begun.
  double elapsed_s = 0;       ///< Seconds.
  metrics last_metrics;       ///< Rank 0's of the last report.
  std::optional<std::string> best_checkpoint; ///< Its folder.
  std::string path;                           ///< Folder of the run.
  error reason; ///< Why it did not finish; its text may have several lines.
};

/// What people ask of *x*, a run of *reports* batches over *elapsed_s* seconds.
run_summary summary_of(const result& x, std::uint64_t reports,
                       double elapsed_s);

/// Several lines, each ended by a newline.
std::string to_string(const run_summary& x);

} // namespace troupe
