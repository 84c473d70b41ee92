#include "troupe/trainers/torch/metrics/aggregation/cat_metric.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

cat_metric::cat_metric(nan_strategy strategy)
  : aggregator(strategy),
    leaves_out_(strategy == nan_strategy{on_nan::warn}
                || strategy == nan_strategy{on_nan::ignore}),
    values_(add_state("values", metric_reduction::cat,
                      at::empty({0}, at::kDouble))) {}

void cat_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values).flatten();
  auto nans = filter(x);
  append(values_, leaves_out_ ? x.masked_select(nans.found.logical_not())
                              : nans.fill(x, 0));
}

at::Tensor cat_metric::result() const {
  warn_of_nans();
  return joined(values_);
}

} // namespace troupe
