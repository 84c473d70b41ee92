#pragma once

#include "troupe/trainers/torch/metrics/aggregation/nan_filter.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// A metric of plain values that knows what to do about NaN.
class aggregator : public value_metric {
protected:
  explicit aggregator(nan_strategy strategy);

  /// The strategy on *values* (and *weights*), which it counts.
  nan_filter filter(const at::Tensor& values, const at::Tensor& weights = {});

  /// Warns, if that is the strategy, of the NaN that were left out.
  void warn_of_nans() const;

private:
  nan_strategy strategy_;
  std::size_t nans_ = 0; // With `on_nan::warn` the number left out, int64.
};

} // namespace troupe
