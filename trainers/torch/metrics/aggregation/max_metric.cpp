#include "troupe/trainers/torch/metrics/aggregation/max_metric.hpp"

#include <limits>

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

constexpr auto max_of_nothing = -std::numeric_limits<double>::infinity();

} // namespace

max_metric::max_metric(nan_strategy strategy)
  : aggregator(strategy),
    max_(add_state("max", metric_reduction::max,
                   at::full({}, max_of_nothing, at::kDouble))) {}

void max_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  if (x.numel() > 0)
    state(max_) =
      at::maximum(state(max_), filter(x).fill(x, max_of_nothing).max());
}

at::Tensor max_metric::result() const {
  warn_of_nans();
  return state(max_);
}

} // namespace troupe
