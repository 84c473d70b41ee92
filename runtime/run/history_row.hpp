#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// One report batch of a run, as its journal has it.
struct history_row {
  std::uint64_t index = 0;   ///< Report index.
  std::uint64_t attempt = 0; ///< Attempt that reported it.
  std::chrono::system_clock::time_point time;
  std::vector<metrics> values; ///< One entry per rank, ordered by rank.
  std::string checkpoint;      ///< Name of its checkpoint; empty: none.
  /// Seconds each rank's loop ran since its report before, ordered by rank;
  /// empty: not known.
  std::vector<double> step_s;
  double wait_s = 0; ///< Seconds from the first rank's arrival to the last's.
  double checkpoint_s = 0; ///< Seconds that committing the checkpoint took.
};

} // namespace troupe
