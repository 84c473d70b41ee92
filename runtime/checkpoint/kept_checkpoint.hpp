#pragma once

#include <cstdint>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/metrics/packed_metrics.hpp"

namespace troupe::internal {

/// A committed checkpoint as the driver keeps it and sends it to ranks. All
/// copies share the metrics, so that a list of many checkpoints with many
/// metrics each costs little to copy.
struct kept_checkpoint {
  checkpoint data;
  packed_metrics values;     ///< As rank 0 reported them.
  std::uint64_t index = 0;   ///< Report index.
  std::uint64_t attempt = 0; ///< Attempt that made it.

  /// For the user.
  reported_checkpoint unpacked() const {
    return {data, values.unpacked(), index, attempt};
  }

  bool operator==(const kept_checkpoint&) const = default;
};

TROUPE_INSPECT(kept_checkpoint, data, values, index, attempt)

} // namespace troupe::internal
