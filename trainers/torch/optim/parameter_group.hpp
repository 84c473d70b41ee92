#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace troupe {

/// Parameters that an optimizer treats with the same options.
template <class Options>
struct parameter_group {
  std::vector<at::Tensor> parameters;
  Options options;
};

} // namespace troupe
