#pragma once

#include <cstdint>
#include <vector>

#include "troupe/trainers/torch/metrics/classification/average.hpp"

namespace troupe {

/// Which points of a curve are kept, and what becomes of several curves.
struct curve_options {
  /// Of a multiclass task not micro.
  troupe::average average = troupe::average::macro;
  /// Number of thresholds, evenly from 0 to 1. With 0 there is one for each
  /// score: the curve is exact, and all scores are kept (8 bytes each).
  std::int64_t bins = 0;
  /// Or these thresholds, in ascending order.
  std::vector<double> thresholds = {};
};

} // namespace troupe
