#pragma once

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// The state of LibTorch's default generators, of the CPU and of *device*, as
/// `cpu` and such as `cuda`.
tensor_map random_state(at::Device device);

/// Puts the generators back to where they were; one that *saved* lacks is left
/// alone.
void set_random_state(const tensor_map& saved, at::Device device);

} // namespace troupe
