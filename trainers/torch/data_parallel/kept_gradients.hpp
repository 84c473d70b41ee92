#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/data_parallel/model_tensors.hpp"

namespace troupe::internal {

/// The gradients of one model that `no_sync` keeps on this rank until a
/// backward averages them, and whether weights changed meanwhile: then a step
/// used them, and the ranks' weights differ. Outlives the Reducers of the
/// model, since such gradients do.
///
/// Changes are found in a sample of each parameter, because optimizers hide
/// their steps from the version counter. Nothing but `changed` waits for a
/// device.
class kept_gradients {
public:
  /// The parameters that are averaged from now on.
  void follow(std::vector<named_tensor> parameters);

  /// A parameter of this rank with such a gradient that *model* still has,
  /// but *averaged* does not; empty if there is none.
  std::string left_behind(const model_tensors& model,
                          const std::vector<named_tensor>& averaged) const;

  /// Parameter *index* got such a gradient.
  void note(std::size_t index);

  /// Whether parameter *index* has a gradient that is to be averaged although
  /// the last backward may not use it.
  bool has(std::size_t index) const;

  /// No step will use the gradients any more: they were averaged or cleared.
  void end();

  /// All ranks have equal weights now.
  void forget_changes();

  /// A parameter whose values changed while there were such gradients; empty if
  /// there is none.
  std::string changed() const;

private:
  at::Tensor values() const;
  at::Tensor differences() const;
  std::string name_in(const at::Tensor& differences) const;

  std::vector<named_tensor> parameters_;
  std::vector<char> kept_;                  // by parameter
  mutable std::vector<at::Tensor> samples_; // views of the parameters
  at::Tensor before_;    // the samples at the first gradient; bytes
  at::Tensor changes_;   // where they changed until `end`
  std::string followed_; // what changed under earlier parameters
};

} // namespace troupe::internal
