#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace troupe {

/// What the `troupe_nccl` library offers. No type of CUDA or NCCL crosses this
/// line, so that only that library needs them.
class nccl_factory {
public:
  virtual ~nccl_factory() = default;

  /// NCCL between *size* ranks that meet at *store*, each with one GPU. Waits
  /// up to *timeout* for the communicator. Throws what c10d throws.
  virtual c10::intrusive_ptr<c10d::Backend>
  make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
       c10::Device device, std::chrono::milliseconds timeout) = 0;
};

} // namespace troupe

/// The one function of the library; its result lives for ever.
extern "C" troupe::nccl_factory* troupe_nccl_factory();

namespace troupe {

using nccl_factory_function = decltype(&::troupe_nccl_factory);
inline constexpr const char* nccl_factory_symbol = "troupe_nccl_factory";

} // namespace troupe
