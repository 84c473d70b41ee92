#pragma once

#include <cstdint>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// A committed checkpoint and the metrics that rank 0 reported with it.
struct reported_checkpoint {
  troupe::checkpoint data;
  metrics values;
  std::uint64_t index = 0;   ///< Report index.
  std::uint64_t attempt = 0; ///< Attempt that made it.

  bool operator==(const reported_checkpoint&) const = default;
};

} // namespace troupe
