#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace troupe {

/// Loads the CUDA part of LibTorch, so that tensors can live on GPUs. Throws
/// `train_error` with `ec::unsupported` if it or a GPU is missing.
void load_cuda(int rank);

/// NCCL between *size* ranks on *device*, a GPU, through the `troupe_nccl`
/// library. Throws `train_error`: `ec::unsupported` names what is missing.
c10::intrusive_ptr<c10d::Backend>
make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                int size, c10::Device device,
                std::chrono::milliseconds timeout);

} // namespace troupe
