#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace troupe::internal {

/// Moves batches to a rank's device while the device computes.
///
/// For an accelerator, a batch is copied through pinned memory on a separate
/// stream; `arrive` makes the compute stream wait for it without blocking the
/// host. On the CPU nothing is done. Different batches may be sent by different
/// threads.
class device_transfer {
public:
  explicit device_transfer(c10::Device device);

  /// What `arrive` has to wait for.
  using ticket = std::shared_ptr<c10::Event>;

  /// Starts the copy of *tensors*, each replaced by its copy on the device.
  ticket send(const std::vector<at::Tensor*>& tensors) const;

  /// Orders the current stream of this thread after the copy.
  void arrive(const ticket& x, const std::vector<at::Tensor*>& tensors) const;

private:
  c10::Device device_;
  std::optional<c10::Stream> stream_; // empty: copies are plain
};

} // namespace troupe::internal
