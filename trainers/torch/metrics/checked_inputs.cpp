#include "troupe/trainers/torch/metrics/checked_inputs.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric_error.hpp"

namespace troupe {

std::string shape_of(const at::Tensor& x) {
  std::string result = "[";
  for (auto size : x.sizes())
    result += (result.size() == 1 ? "" : ", ") + std::to_string(size);
  return result + ']';
}

at::Tensor widened(const std::string& name, const at::Tensor& x) {
  if (x.is_complex())
    refuse_metric(name, std::string{"takes real numbers, not "}
                          + toString(x.scalar_type()));
  return x.to(at::kDouble);
}

} // namespace troupe
