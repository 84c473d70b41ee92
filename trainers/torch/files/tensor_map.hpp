#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace troupe {

/// Tensors by name.
using tensor_map = std::map<std::string, at::Tensor>;

} // namespace troupe
