#include "troupe/trainers/torch/groups/nccl/nccl_library.hpp"

#include <cstdlib>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace troupe::internal {

namespace {

/// Changes defaults of c10d's NCCL that would end the process instead of
/// notifying the control plane. The user's own settings stay.
void configure_watchdog(std::chrono::milliseconds timeout) {
  // On a failure abort the communicators, not the rank, so that it can report.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", 0);
  // An error of the device reaches the loop with its next call.
  ::setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", 0);
  // The control plane watches the ranks itself.
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
  // The flight recorder is not used; turning it off saves a store request per
  // second.
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
  // c10d waits for a communicator that starts under the lock that an abort
  // needs: 30 minutes, unless set otherwise.
  auto limit = std::chrono::ceil<std::chrono::seconds>(timeout).count();
  ::setenv("TORCH_NCCL_NONBLOCKING_TIMEOUT", std::to_string(limit).c_str(), 0);
}

} // namespace

} // namespace troupe::internal

extern "C" __attribute__((visibility("default"))) c10d::Backend*
troupe_make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                       int size, c10::Device device,
                       std::chrono::milliseconds timeout) {
  troupe::internal::configure_watchdog(timeout);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  // A blocking communicator cannot be aborted while it is being built.
  options->config.blocking = 0;
  auto group =
    c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  group->setBoundDeviceId(device);
  group->eagerConnectSingleDevice(device);
  return group.release();
}
