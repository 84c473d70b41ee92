#include "troupe/trainers/torch/metrics/regression/mean_absolute_percentage_error.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/regression/smallest_divisor.hpp"

namespace troupe {

mean_absolute_percentage_error::mean_absolute_percentage_error()
  : mean_error("absolute_percentage_error") {}

at::Tensor
mean_absolute_percentage_error::errors(const at::Tensor& preds,
                                       const at::Tensor& target) const {
  return (preds - target).abs() / target.abs().clamp_min(smallest_divisor);
}

} // namespace troupe
