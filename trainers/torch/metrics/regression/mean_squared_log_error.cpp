#include "troupe/trainers/torch/metrics/regression/mean_squared_log_error.hpp"

#include <ATen/ATen.h>

namespace troupe {

mean_squared_log_error::mean_squared_log_error()
  : mean_error("squared_log_error") {}

at::Tensor mean_squared_log_error::errors(const at::Tensor& preds,
                                          const at::Tensor& target) const {
  return (preds.log1p() - target.log1p()).square();
}

} // namespace troupe
