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
/// their steps from the version counter. Only a function that says so waits
/// for a device.
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

  /// A backward failed, and its Reducer, which knows that, goes.
  void note_failure() noexcept { failed_ = true; }

  /// The gradients of a failed backward do no harm: no other rank has any.
  void forget_failure() noexcept { failed_ = false; }

  /// Whether a backward of an earlier Reducer failed, and nothing has ended
  /// that since.
  bool failed() const noexcept { return failed_; }

  /// Whether a parameter has a gradient other than zeros. Waits for a device.
  bool has_gradients() const;

  /// All ranks have equal weights now.
  void forget_changes();

  /// A parameter whose values changed while there were such gradients, or whose
  /// type or device did; empty if there is none. Waits for a device.
  std::string changed() const;

private:
  void watch();
  at::Tensor values() const;
  std::string of_other_kind() const;
  at::Tensor differences() const;
  std::string name_in(const at::Tensor& differences) const;

  std::vector<named_tensor> parameters_;
  std::vector<char> kept_;                  // by parameter
  mutable std::vector<at::Tensor> samples_; // views of the parameters
  at::Tensor before_; // the samples at the first gradient; bytes
  std::vector<at::TensorOptions> kinds_; // type and device of each then
  at::Tensor changes_;                   // where they changed until `end`
  std::string followed_; // what changed under earlier parameters or kinds
  bool failed_ = false;
};

} // namespace troupe::internal
