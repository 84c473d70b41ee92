#include "troupe/trainers/torch/metrics/aggregation/sum_metric.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

sum_metric::sum_metric(nan_strategy strategy)
  : aggregator(strategy),
    sum_(add_state("sum", metric_reduction::sum, at::zeros({}, at::kDouble))) {}

void sum_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  state(sum_) = state(sum_) + filter(x).fill(x, 0).sum();
}

at::Tensor sum_metric::result() const {
  warn_of_nans();
  return state(sum_);
}

} // namespace troupe
