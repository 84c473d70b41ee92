#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint_part.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// Report *index* of every rank, and the checkpoint they made together if any
/// did.
struct report_batch {
  std::uint64_t index = 0;
  std::vector<metrics> values; ///< One entry per rank, ordered by rank.
  std::optional<checkpoint_part>
    part; ///< Files of all ranks that reported one.

  bool operator==(const report_batch&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, report_batch& x) {
  return f.object(x).fields(f.field("index", x.index),
                            f.field("values", x.values),
                            f.field("part", x.part));
}

} // namespace troupe
