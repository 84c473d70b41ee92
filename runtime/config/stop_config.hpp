#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// A bound for a metric of rank 0, `a/b` for nested ones. Set one of the two.
struct stop_threshold {
  std::string metric;
  std::optional<double> at_least = {};
  std::optional<double> at_most = {};
};

/// When a run has trained enough, whichever comes first: it then finishes, and
/// `result::stop_reason` says why. Judged with every report, of which it is the
/// last one unless the loop asks `stop_requested()`.
struct stop_config {
  /// Any of them ends the run. A value that is not a number, or NaN, does not.
  /// If no report has a metric, the console and the journal say so at the end.
  std::vector<stop_threshold> metrics;
  /// Reports of the whole run, restarts included.
  std::optional<std::uint64_t> reports;
  /// Since this start of the run, which its first report after that ends.
  std::optional<std::chrono::milliseconds> time;
};

namespace internal {

/// Refuses thresholds without a name or with no or two bounds, or with a NaN,
/// and limits below one.
expected<void> validate(const stop_config& x);

} // namespace internal

} // namespace troupe
