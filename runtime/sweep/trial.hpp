#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe {

/// One run of a sweep.
struct trial {
  std::size_t index = 0; ///< From 0, in the order in which trials began.
  std::string name;      ///< Of its run, and of the run's folder.
  troupe::metrics params;
  /// `running` if it has not ended: the next start of the sweep resumes it.
  run_status_kind status = run_status_kind::running;
  /// The sweep's metric in its last report, unless that is missing or NaN. Of
  /// a trial that failed: of the last report that it made.
  std::optional<double> score;
  troupe::metrics metrics;   ///< Rank 0's of its last report.
  std::uint64_t reports = 0; ///< How many it has made.
  double seconds = 0;        ///< That it ran, in all starts of the sweep.
  /// Why it ended before its loops returned, or failed; may be empty.
  std::string reason;

  bool operator==(const trial&) const = default;
};

TROUPE_INSPECT(trial, index, name, params, status, score, metrics, reports,
               seconds, reason)

namespace internal {

/// `trial-0007`.
std::string trial_name(std::size_t index);

/// Whether *name* is like those that `trial_name` makes.
bool is_trial_name(std::string_view name) noexcept;

/// The finished one with the best score; of equals the first. Null: none has a
/// score.
const trial* best_of(const std::vector<trial>& trials, score_order order);

} // namespace internal

} // namespace troupe
