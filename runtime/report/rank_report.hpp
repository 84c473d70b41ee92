#pragma once

#include <cstdint>
#include <optional>

#include "troupe/runtime/checkpoint/checkpoint_part.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// Report *index* of one rank. Indices count over the whole run, restarts
/// included.
struct rank_report {
  int rank = 0;
  std::uint64_t index = 0;
  metrics values;
  std::optional<checkpoint_part> part;
  double step_s = 0; ///< Seconds the loop ran since its report before.

  bool operator==(const rank_report&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, rank_report& x) {
  return f.object(x).fields(f.field("rank", x.rank), f.field("index", x.index),
                            f.field("values", x.values),
                            f.field("part", x.part),
                            f.field("step_s", x.step_s));
}

} // namespace troupe
