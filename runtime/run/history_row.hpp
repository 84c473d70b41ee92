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
};

} // namespace troupe
