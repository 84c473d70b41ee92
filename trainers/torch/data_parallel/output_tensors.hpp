#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "troupe/trainers/torch/visit_tensors.hpp"

namespace troupe {

/// Calls *f* with each tensor of a TorchScript value and stores what it
/// returns.
void replace_tensors(c10::IValue& value,
                     const std::function<at::Tensor(at::Tensor)>& f);

/// Appends the tensors of a forward's output to *found*; returns whether *T* is
/// a type that `visit_tensors` knows.
template <class T>
bool find_tensors(T& x, std::vector<at::Tensor*>& found) {
  return visit_tensors(x, [&found](at::Tensor& t) { found.push_back(&t); });
}

} // namespace troupe
