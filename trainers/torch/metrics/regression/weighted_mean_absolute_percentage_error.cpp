#include "troupe/trainers/torch/metrics/regression/weighted_mean_absolute_percentage_error.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"
#include "troupe/trainers/torch/metrics/regression/smallest_divisor.hpp"

namespace troupe {

using self = weighted_mean_absolute_percentage_error;

self::weighted_mean_absolute_percentage_error()
  : errors_(
    add_state("errors", metric_reduction::sum, at::zeros({}, at::kDouble))),
    targets_(add_state("targets", metric_reduction::sum,
                       at::zeros({}, at::kDouble))) {}

void self::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  auto p = widened(name(), preds);
  auto t = widened(name(), target);
  state(errors_) = state(errors_) + (p - t).abs().sum();
  state(targets_) = state(targets_) + t.abs().sum();
}

at::Tensor self::result() const {
  return state(errors_) / state(targets_).clamp_min(smallest_divisor);
}

} // namespace troupe
