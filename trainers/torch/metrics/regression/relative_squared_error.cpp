#include "troupe/trainers/torch/metrics/regression/relative_squared_error.hpp"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

namespace troupe {

relative_squared_error::relative_squared_error(bool squared)
  : squared_(squared) {}

std::string relative_squared_error::name() const {
  return squared_ ? "relative_squared_error" : "root_relative_squared_error";
}

at::Tensor relative_squared_error::result() const {
  auto variation = at::where(samples().eq(0), NAN, target_variation());
  auto errors = squared_errors()
                / variation.clamp_min(std::numeric_limits<double>::epsilon());
  return (squared_ ? errors : errors.sqrt()).mean();
}

} // namespace troupe
