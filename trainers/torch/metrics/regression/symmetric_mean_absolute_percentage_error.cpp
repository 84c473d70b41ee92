#include "troupe/trainers/torch/metrics/regression/symmetric_mean_absolute_percentage_error.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/regression/smallest_divisor.hpp"

namespace troupe {

symmetric_mean_absolute_percentage_error::
  symmetric_mean_absolute_percentage_error()
  : mean_error("symmetric_absolute_percentage_error") {}

at::Tensor symmetric_mean_absolute_percentage_error::errors(
  const at::Tensor& preds, const at::Tensor& target) const {
  return 2 * (preds - target).abs()
         / (target.abs() + preds.abs()).clamp_min(smallest_divisor);
}

} // namespace troupe
