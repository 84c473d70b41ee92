#include "troupe/trainers/torch/metrics/value_metric.hpp"

#include <ATen/ATen.h>

namespace troupe {

void value_metric::update(const at::Tensor& values) {
  accumulate(values.device(), [&] { add(values); });
}

void value_metric::update(double value) {
  update(as_tensor(value));
}

at::Tensor value_metric::forward(const at::Tensor& values) {
  return batch_value([&] { update(values); });
}

at::Tensor value_metric::forward(double value) {
  return batch_value([&] { update(value); });
}

at::Tensor value_metric::as_tensor(double x) const {
  return at::full({}, x, at::TensorOptions{state_device()}.dtype(at::kDouble));
}

} // namespace troupe
