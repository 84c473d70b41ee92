#include "troupe/trainers/torch/metrics/aggregation/min_metric.hpp"

#include <limits>

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

constexpr auto min_of_nothing = std::numeric_limits<double>::infinity();

} // namespace

min_metric::min_metric(nan_strategy strategy)
  : aggregator(strategy),
    min_(add_state("min", metric_reduction::min,
                   at::full({}, min_of_nothing, at::kDouble))) {}

void min_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  if (x.numel() > 0)
    state(min_) =
      at::minimum(state(min_), filter(x).fill(x, min_of_nothing).min());
}

at::Tensor min_metric::result() const {
  warn_of_nans();
  return state(min_);
}

} // namespace troupe
