#include "troupe/trainers/torch/metrics/aggregation/aggregator.hpp"

#include <ATen/ATen.h>

namespace troupe {

namespace {

bool warns(const nan_strategy& x) {
  return x == nan_strategy{on_nan::warn};
}

} // namespace

aggregator::aggregator(nan_strategy strategy) : strategy_(strategy) {
  if (warns(strategy_))
    nans_ = add_state("nans", metric_reduction::sum, at::zeros({}, at::kLong));
}

nan_filter aggregator::filter(const at::Tensor& values,
                              const at::Tensor& weights) {
  nan_filter result{name(), strategy_, values, weights};
  if (warns(strategy_))
    state(nans_) = state(nans_) + result.left_out();
  return result;
}

void aggregator::warn_of_nans() const {
  if (!warns(strategy_))
    return;
  if (auto nans = state(nans_).item<std::int64_t>(); nans > 0)
    warn_metric(name(), std::to_string(nans) + " NaN left out");
}

} // namespace troupe
