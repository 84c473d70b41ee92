#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace troupe {

/// The shape of *x* for people: "[3, 2]".
std::string shape_of(const at::Tensor& x);

/// *x* as double: floating-point numbers of any width, integers and flags.
/// Refuses complex numbers in the name of the metric called *name*.
at::Tensor widened(const std::string& name, const at::Tensor& x);

} // namespace troupe
