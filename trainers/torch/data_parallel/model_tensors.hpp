#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "troupe/trainers/torch/visit_tensors.hpp"

namespace torch {
namespace jit {
struct Module;
}
namespace nn {
class Module;
}
} // namespace torch

namespace troupe {
struct data_parallel_options;
} // namespace troupe

namespace troupe::internal {

/// A parameter or buffer of a model under its dotted name ("layer1.0.weight").
struct named_tensor {
  std::string name;
  at::Tensor tensor;
  /// Its gradient will be sparse: the weight of an embedding that says so.
  bool sparse_gradient = false;
  /// Forward scales the rows that it reads: the same, with a `max_norm`.
  bool changes_in_forward = false;
};

/// What data-parallel training needs to know about a model. Tensors come in the
/// order of registration; one that is shared comes once, under its first name.
struct model_tensors {
  std::string model; ///< The model's type, for logs and errors.
  std::vector<named_tensor> parameters; ///< Frozen ones too.
  std::vector<named_tensor> buffers;
};

model_tensors tensors_of(const torch::nn::Module& module);
model_tensors tensors_of(const torch::jit::Module& module);

/// Appends the parameters of *module* to *out*, frozen ones too and shared ones
/// once for each name. Builds no names, so it is cheap enough for each step.
void append_parameters(const torch::nn::Module& module,
                       std::vector<c10::TensorImpl*>& out);
void append_parameters(const torch::jit::Module& module,
                       std::vector<c10::TensorImpl*>& out);

/// Whether the tensor *name* stays local to each rank under *options*.
bool is_ignored(const data_parallel_options& options, const std::string& name);

/// Whether *parameter* has a gradient other than zeros. Waits for a device.
bool has_gradient(const at::Tensor& parameter);

/// What the group averages of *model*.
std::vector<named_tensor> reduced_of(const model_tensors& model,
                                     const data_parallel_options& options);

/// What is inconsistent in *options*, or with *model*; empty if nothing is.
std::string problem_of(const model_tensors& model,
                       const data_parallel_options& options);

/// Why *model*, of which *trained* is averaged, cannot be trained with
/// *options*; empty if it can.
std::string problem_of(const model_tensors& model,
                       const std::vector<named_tensor>& trained,
                       const data_parallel_options& options);

/// Computed at each call: users may freeze and replace tensors between steps.
struct model_tensors_source {
  std::function<model_tensors()> tensors;
  std::function<void(std::vector<c10::TensorImpl*>&)> append_parameters;
};

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

} // namespace troupe::internal
