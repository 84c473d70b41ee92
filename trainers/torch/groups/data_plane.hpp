#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// What the ranks of one attempt compute with: the group that gradients travel
/// over, and this rank's device. The torch trainer puts one into
/// `train_context::data_plane()` before the loop starts.
struct torch_data_plane {
  c10::intrusive_ptr<c10d::ProcessGroup> group; ///< nullptr in a world of one.
  at::Device device{at::kCPU};
};

/// The data plane of *context*. A loop that was not started by a torch trainer
/// has none: that throws `train_error`.
std::shared_ptr<torch_data_plane> data_plane(train_context& context);

/// This rank's device.
at::Device device(train_context& context);

/// How many GPUs LibTorch can use in this process; 0 without its CUDA part or a
/// driver. Loads the CUDA part: call it in `main`, before the first seed or
/// tensor, if it decides about `use_gpu` or if ranks are threads of the
/// program. (`torch::cuda::is_available()` is false until something has.)
int gpu_count();

/// Sums *x* over all ranks, in place, and returns it; every rank gets the same
/// bits. *x* may be on the CPU or on this rank's device. A collective: all
/// ranks call it with equal shapes and types. In a world of one it does
/// nothing. Gradients do not pass through it: an *x* that requires one throws
/// `train_error`, as does an attempt that ends meanwhile.
at::Tensor all_reduce_sum(train_context& context, at::Tensor x);

} // namespace troupe
