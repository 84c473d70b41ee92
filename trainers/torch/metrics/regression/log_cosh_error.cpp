#include "troupe/trainers/torch/metrics/regression/log_cosh_error.hpp"

#include <cmath>

#include <ATen/ATen.h>

namespace troupe {

log_cosh_error::log_cosh_error(std::int64_t num_outputs)
  : mean_error("log_cosh_error", num_outputs) {}

at::Tensor log_cosh_error::errors(const at::Tensor& preds,
                                  const at::Tensor& target) const {
  auto x = (preds - target).abs();
  return x + (-2 * x).exp().log1p() - std::log(2.0);
}

} // namespace troupe
