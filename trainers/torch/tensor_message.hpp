#pragma once

#include <ATen/core/Tensor.h>

#include "troupe/actors/protocol/shared_bytes.hpp"

// Tensors in messages between actors and ranks. `troupe/actors.hpp` has the
// mailboxes.
namespace troupe {

/// A copy of *x* that may travel: type, shape and elements, without gradient.
/// Throws `train_error` unless *x* is a contiguous dense tensor on the CPU:
/// `x.cpu().contiguous()` makes one.
tensor_message to_message(const at::Tensor& x);

/// The tensor of *x*, on the CPU, without a copy: it shares the memory of the
/// message and keeps it. Clone it before writing to it. Throws `train_error`
/// for a message that does not describe a tensor.
at::Tensor to_tensor(const tensor_message& x);

} // namespace troupe
