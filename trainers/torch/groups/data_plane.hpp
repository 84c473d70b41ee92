#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// What a rank of one attempt computes with: the process group for gradients,
/// and its device. The torch trainer puts one into `rank_access::data_plane()`
/// of the context before the loop starts.
struct torch_data_plane {
  c10::intrusive_ptr<c10d::ProcessGroup> group; ///< nullptr with one rank.
  at::Device device{at::kCPU};
  int loops = 0; ///< Fits of `epoch_loop`s so far, without those inside others.
  std::vector<int> failed_loops; ///< The numbers of those that threw.
  bool is_fitting = false;       ///< One is under way.
};

/// The data plane of *context*. Throws `train_error` in a loop that was not
/// started by a torch trainer.
std::shared_ptr<torch_data_plane> data_plane(train_context& context);

/// This rank's device.
at::Device device(train_context& context);

/// How many GPUs LibTorch can use in this process; 0 without its CUDA part or a
/// driver. Loads the CUDA part: call it in `main`, after `troupe::init`, whose
/// ranks are forks, and before the first seed or tensor, if it decides about
/// `use_gpu` or if ranks are threads of the program.
/// (`torch::cuda::is_available()` is false until it is loaded.)
int gpu_count();

} // namespace troupe
