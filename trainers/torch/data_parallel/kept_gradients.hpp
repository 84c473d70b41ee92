#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/data_parallel/model_tensors.hpp"

namespace troupe::internal {

/// What may have made weights differ from those of other ranks.
enum class change_cause : std::uint8_t {
  kept,    ///< A step with gradients that `no_sync` kept.
  left,    ///< A step with gradients that a failed or refused backward left.
  rounded, ///< The model became of a narrower type and back.
  stepped, ///< A step after weights, but not optimizers, were made equal.
};

struct changed_parameter {
  std::string name;
  change_cause cause;
};

/// The gradients of one model that `no_sync`, or a backward that failed or was
/// refused, keeps on this rank until a backward averages them, and whether
/// weights changed meanwhile: then a step used them, and the ranks' weights
/// differ. Outlives the Reducers of the model, since such gradients do.
///
/// Changes are found in a sample of each parameter, because optimizers hide
/// their steps from the version counter. Only a function that says so waits
/// for a device.
class kept_gradients {
public:
  /// The parameters that are averaged from now on. Waits for a device.
  void follow(std::vector<named_tensor> parameters);

  /// A parameter of this rank with such a gradient that *model* still has,
  /// but *averaged* does not; empty if there is none.
  std::string left_behind(const model_tensors& model,
                          const std::vector<named_tensor>& averaged) const;

  /// A backward within `no_sync` brings gradients. Returns whether it is new.
  bool begin_alone() noexcept { return !std::exchange(runs_alone_, true); }

  /// It returned; one that failed does not come here.
  void end_alone() noexcept { runs_alone_ = false; }

  /// Parameter *index* got such a gradient.
  void note(std::size_t index);

  /// Whether parameter *index* has a gradient that is to be averaged although
  /// the last backward may not use it.
  bool has(std::size_t index) const;

  /// No step will use the gradients any more: they were averaged.
  void end();

  /// The same, because they were cleared, also those of a refused backward.
  void clear();

  /// A backward broke off, and a step may use what it left.
  void watch_failure();

  /// Troupe refused a backward. What it left does not travel.
  void note_refusal();

  /// Whether that happened, or a backward within `no_sync` failed, and nothing
  /// has cleared the gradients since. Not to be called during a backward.
  bool refused() const noexcept { return refused_ || runs_alone_; }

  /// Whether a parameter has a gradient other than zeros. Waits for a device.
  bool has_gradients() const;

  /// Optimizers differ: they made parameter *name* of a rank another one.
  void note_difference(std::string name);

  /// All ranks have equal weights now.
  void forget_changes();

  /// The parameters at *indices* became of another type or device and back. If
  /// all of their values fit into a narrower type, they were rounded in it,
  /// unless they are not *stepped* yet and fit into one from the beginning.
  /// Waits for a device.
  void note_return(const std::vector<std::size_t>& indices, bool stepped);

  /// A parameter whose values changed while there were such gradients, or whose
  /// type or device did, or that was rounded. Waits for a device.
  std::optional<changed_parameter> changed() const;

private:
  void watch(change_cause cause);
  void take_samples();
  at::Tensor values() const;
  std::string of_other_kind() const;
  at::Tensor differences() const;
  std::string name_in(const at::Tensor& differences) const;

  std::vector<named_tensor> parameters_;
  std::vector<char> kept_;   // by parameter
  std::vector<char> narrow_; // whether its values fit into a narrower type
  mutable std::vector<at::Tensor> samples_; // views of the parameters
  at::Tensor before_; // the samples at the first gradient; bytes
  std::vector<at::TensorOptions> kinds_;    // type and device of each then
  at::Tensor changes_;                      // where they changed until `end`
  change_cause cause_ = change_cause::kept; // of what `before_` will show
  std::optional<changed_parameter> known_;  // no matter what `before_` shows
  bool refused_ = false;
  bool runs_alone_ = false; // or failed
};

} // namespace troupe::internal
