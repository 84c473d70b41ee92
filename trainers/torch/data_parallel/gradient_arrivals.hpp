#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace troupe::internal {

/// Calls *f* after each gradient that backward adds to *parameter*, whichever
/// accumulator adds it, until the result goes or the function is called again
/// for that parameter. Never if another library has taken the only place that
/// LibTorch has for this.
std::shared_ptr<void> after_each_gradient(const at::Tensor& parameter,
                                          std::function<void()> f);

} // namespace troupe::internal
