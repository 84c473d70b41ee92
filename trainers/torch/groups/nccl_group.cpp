#include "troupe/trainers/torch/groups/nccl_group.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include "troupe/trainers/torch/groups/nccl/nccl_factory.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

namespace {

[[noreturn]] void lacks(int rank, const std::string& what) {
  throw train_error{
    {ec::unsupported, "rank " + std::to_string(rank) + ": " + what}};
}

/// Where `troupe_nccl` may lie: where the user says, where it was built, where
/// the loader looks. The package adds its own folder to the run path of
/// programs.
std::vector<std::string> places() {
  std::vector<std::string> result;
  if (auto* given = std::getenv("TROUPE_NCCL_LIBRARY"))
    result.emplace_back(given);
#ifdef TROUPE_NCCL_BUILT_AS
  result.emplace_back(TROUPE_NCCL_BUILT_AS);
#endif
  result.emplace_back("libtroupe_nccl.so");
  return result;
}

nccl_factory& factory(int rank) {
  std::string reasons;
  for (auto& place : places()) {
    if (auto* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      auto* function = reinterpret_cast<nccl_factory_function>(
        ::dlsym(library, nccl_factory_symbol));
      if (function)
        return *function();
    }
    auto* reason = ::dlerror();
    reasons += std::string{reasons.empty() ? "" : "; "}
               + (reason ? reason : place.c_str());
  }
  lacks(rank, "the library troupe_nccl could not be loaded: " + reasons);
}

} // namespace

void load_cuda(int rank) {
  if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL))
    lacks(rank, std::string{"the CUDA part of LibTorch could not be loaded: "}
                  + ::dlerror());
  if (!at::hasCUDA())
    lacks(rank, "LibTorch finds no GPU on this host, or was asked for one "
                "before its CUDA part was loaded: call troupe::gpu_count() "
                "before the first seed or tensor of a program whose ranks are "
                "threads");
}

int gpu_count() {
  if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) || !at::hasCUDA())
    return 0;
  return c10::impl::VirtualGuardImpl{at::kCUDA}.deviceCount();
}

c10::intrusive_ptr<c10d::Backend>
make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                int size, c10::Device device,
                std::chrono::milliseconds timeout) {
  try {
    return factory(rank).make(store, rank, size, device, timeout);
  } catch (const train_error&) {
    throw;
  } catch (const std::exception& e) {
    throw train_error{
      {ec::rank_failed,
       "rank " + std::to_string(rank) + ": NCCL could not start: " + e.what()}};
  }
}

} // namespace troupe
