#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace troupe {

/// Scales the gradients of *parameters* in place so that their common norm of
/// order *norm_type* is at most *max_norm*, and returns the norm before as a
/// 0-d tensor. Never waits for a device. Throws `train_error` for a sparse
/// gradient.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters,
                          double max_norm, double norm_type = 2.0);

} // namespace troupe
