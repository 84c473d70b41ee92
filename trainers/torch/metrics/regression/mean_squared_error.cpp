#include "troupe/trainers/torch/metrics/regression/mean_squared_error.hpp"

#include <ATen/ATen.h>

namespace troupe {

mean_squared_error::mean_squared_error(options x)
  : mean_error("squared_error", x.num_outputs), squared_(x.squared) {}

std::string mean_squared_error::name() const {
  return squared_ ? "mean_squared_error" : "root_mean_squared_error";
}

at::Tensor mean_squared_error::errors(const at::Tensor& preds,
                                      const at::Tensor& target) const {
  return (preds - target).square();
}

at::Tensor mean_squared_error::result() const {
  auto mean = mean_error::result();
  return squared_ ? mean : mean.sqrt();
}

} // namespace troupe
