#include "troupe/trainers/torch/metrics/regression/mean_absolute_error.hpp"

#include <ATen/ATen.h>

namespace troupe {

mean_absolute_error::mean_absolute_error(std::int64_t num_outputs)
  : mean_error("absolute_error", num_outputs) {}

at::Tensor mean_absolute_error::errors(const at::Tensor& preds,
                                       const at::Tensor& target) const {
  return (preds - target).abs();
}

} // namespace troupe
