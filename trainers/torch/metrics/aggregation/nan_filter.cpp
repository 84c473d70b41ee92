#include "troupe/trainers/torch/metrics/aggregation/nan_filter.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

nan_filter::nan_filter(const std::string& name, const nan_strategy& strategy,
                       const at::Tensor& values, const at::Tensor& weights)
  : strategy(strategy) {
  auto kind = std::get_if<on_nan>(&strategy);
  if (kind && *kind == on_nan::disable)
    return;
  found = at::isnan(values);
  if (weights.defined())
    found = found.logical_or(at::isnan(weights));
  if (kind && *kind == on_nan::error && found.any().item<bool>())
    refuse_metric(name, "an update has "
                          + std::to_string(found.sum().item<std::int64_t>())
                          + " NaN");
}

at::Tensor nan_filter::fill(const at::Tensor& x, double neutral,
                            double replacement) const {
  if (!found.defined())
    return x;
  auto number = std::holds_alternative<double>(strategy);
  return x.masked_fill(found, number ? replacement : neutral);
}

at::Tensor nan_filter::fill(const at::Tensor& x, double neutral) const {
  auto number = std::get_if<double>(&strategy);
  return fill(x, neutral, number ? *number : neutral);
}

at::Tensor nan_filter::left_out() const {
  if (!found.defined() || std::holds_alternative<double>(strategy))
    return at::zeros({}, at::kLong);
  return found.sum();
}

} // namespace troupe
