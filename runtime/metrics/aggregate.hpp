#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// How a number differs between the ranks that reported it.
struct rank_spread {
  double mean = 0;
  double min = 0;
  double max = 0;
  double std = 0;        ///< Of the population, sqrt(sum (x - mean)^2 / count):
                         ///< the ranks are all there are. 0 for one rank.
  std::size_t count = 0; ///< Ranks that reported the number.

  bool operator==(const rank_spread&) const = default;
};

/// What *ranks* (as `user_callback::after_report` gets them) reported, by name.
///
/// A rank without the name, or with a text under it, is left out of it; a name
/// that no rank has a number for is left out altogether. Flags count as 0 and
/// 1. A NaN on any rank makes mean, min, max and std NaN, so that it cannot
/// hide behind the others. An infinity stays one in mean, min or max (NaN
/// between both infinities) and makes the std NaN.
std::map<std::string, rank_spread> aggregate(std::span<const metrics> ranks);

/// The same as metrics, ready to be written somewhere: `loss/mean`, `loss/min`,
/// `loss/max` and `loss/std`.
metrics aggregated_metrics(std::span<const metrics> ranks);

} // namespace troupe
