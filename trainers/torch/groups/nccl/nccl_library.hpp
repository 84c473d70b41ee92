#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

/// The one function of the `troupe_nccl` library: NCCL between *size* ranks
/// that meet at *store*, each with one GPU. Waits up to *timeout* for the
/// communicator. The caller owns the result. Throws what c10d throws.
///
/// This interface has no type of CUDA or NCCL, so that only that library needs
/// them.
extern "C" c10d::Backend*
troupe_make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                       int size, c10::Device device,
                       std::chrono::milliseconds timeout);

namespace troupe::internal {

using nccl_function = decltype(&::troupe_make_nccl_group);
inline constexpr const char* nccl_symbol = "troupe_make_nccl_group";

} // namespace troupe::internal
