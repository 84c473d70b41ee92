#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch {
namespace jit {
struct Module;
}
namespace nn {
class Module;
}
} // namespace torch

namespace troupe {

/// A parameter or buffer of a model under its dotted name ("layer1.0.weight").
struct named_tensor {
  std::string name;
  at::Tensor tensor;
  /// Its gradient will be sparse: the weight of an embedding that says so.
  bool sparse_gradient = false;
};

/// What data-parallel training has to know of a model. Tensors come in the
/// order of registration; one that is shared comes once, under its first name.
struct model_tensors {
  std::string model; ///< The model's type, for logs and errors.
  std::vector<named_tensor> parameters; ///< Frozen ones too.
  std::vector<named_tensor> buffers;
};

model_tensors tensors_of(const torch::nn::Module& module);
model_tensors tensors_of(const torch::jit::Module& module);

/// Looks again at each call: users may replace buffers between steps.
using model_tensors_source = std::function<model_tensors()>;

} // namespace troupe
