#pragma once

#include <vector>

#include <torch/torch.h>

namespace troupe::internal::test {

inline at::Tensor numbers(const std::vector<double>& x) {
  return torch::tensor(x, torch::kDouble);
}

} // namespace troupe::internal::test
