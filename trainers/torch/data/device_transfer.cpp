#include "troupe/trainers/torch/data/device_transfer.hpp"

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace troupe::internal {

device_transfer::device_transfer(c10::Device device) : device_(device) {
  if (device.is_cuda())
    stream_ =
      c10::impl::VirtualGuardImpl{device.type()}.getStreamFromGlobalPool(
        device);
}

device_transfer::ticket
device_transfer::send(const std::vector<at::Tensor*>& tensors) const {
  if (device_.is_cpu())
    return nullptr;
  if (!stream_) {
    for (auto* x : tensors)
      *x = x->to(device_);
    return nullptr;
  }
  const c10::StreamGuard side{*stream_};
  for (auto* x : tensors) {
    if (x->device().is_cpu())
      // The pinned source is freed by its allocator once the copy is done.
      *x = x->pin_memory().to(device_, x->scalar_type(), /*non_blocking=*/true);
    else
      *x = x->to(device_);
  }
  auto done = std::make_shared<c10::Event>(device_.type());
  done->record(*stream_);
  return done;
}

void device_transfer::arrive(const ticket& x,
                             const std::vector<at::Tensor*>& tensors) const {
  if (!x)
    return;
  auto current = c10::impl::VirtualGuardImpl{device_.type()}.getStream(device_);
  x->block(current);
  // Keeps the allocator from giving the memory to the side stream while the
  // compute stream still reads it.
  for (auto* tensor : tensors)
    tensor->record_stream(current);
}

} // namespace troupe::internal
