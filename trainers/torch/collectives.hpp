#pragma once

#include <ATen/core/Tensor.h>

namespace troupe {

class train_context;

/// Sums *x* over all ranks, in place, and returns it; every rank gets the same
/// bits. *x* may be on the CPU or on this rank's device. A collective: all
/// ranks call it with equal shapes and types. In a world of one it does
/// nothing. Gradients do not pass through it: an *x* that requires one throws
/// `train_error`, as does an attempt that ends meanwhile.
at::Tensor all_reduce_sum(train_context& context, at::Tensor x);

} // namespace troupe
