#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/files/tensor_map.hpp"
#include "troupe/trainers/torch/optim/parameter_group.hpp"

namespace troupe {

/// What the fused optimizers share: parameter groups, learning rates, zeroing
/// and saving.
///
/// A step updates all parameters in one kernel per data type and device.
/// Parameters that are frozen or have no gradient yet are skipped. Belongs to
/// one thread.
template <class Options>
class fused_optimizer {
public:
  using options_type = Options;
  using group_type = parameter_group<Options>;

  fused_optimizer(const fused_optimizer&) = delete;
  fused_optimizer& operator=(const fused_optimizer&) = delete;

  /// Forgets the gradients: a step then skips the parameters that got no new
  /// one. With *set_to_none* false they are zeroed where they lie, which costs
  /// two passes over memory, and a step updates all of them.
  void zero_grad(bool set_to_none = true);

  /// Learning rate of group *group*.
  double lr(std::size_t group = 0) const {
    return groups_.at(group).options.lr;
  }

  /// Sets the learning rate of all groups. Throws `train_error` for a negative
  /// one or a NaN.
  void set_lr(double lr);

  /// The same for group *group*.
  void set_lr(std::size_t group, double lr);

  /// Parameters and options; the options may be changed between two steps.
  std::vector<group_type>& groups() noexcept { return groups_; }
  const std::vector<group_type>& groups() const noexcept { return groups_; }

  /// What has to be saved to continue exactly: `<prefix>group.<g>.<option>`
  /// for every option of a group and `<prefix>state.<i>.<name>` for parameter
  /// i, counted over all groups. The tensors are the optimizer's own, not
  /// copies.
  tensor_map state(const std::string& prefix = "optimizer.") const;

  /// Takes over all of *saved* that begins with *prefix*, options too: a state
  /// without an option (but `lr`) leaves it as it is. Throws `train_error` that
  /// lists what does not fit, and then nothing has changed.
  void load_state(const tensor_map& saved,
                  const std::string& prefix = "optimizer.");

protected:
  /// What the optimizer remembers of one parameter; empty before its first
  /// step.
  using slot = tensor_map;

  /// Parameters of one group, data type and device that have a gradient.
  struct work {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients; // laid out as the parameters
    std::vector<slot*> slots;
  };

  /// All that the next step updates in group *group*. Throws `train_error` for
  /// a sparse gradient.
  std::vector<work> due(std::size_t group);

  /// Throws `train_error` for a parameter that no fused kernel can update, and
  /// for an option that LibTorch's optimizers refuse, such as a negative `lr`.
  explicit fused_optimizer(std::vector<group_type> groups);
  ~fused_optimizer() = default;

  std::vector<group_type> groups_;
  std::vector<slot> slots_; // one per parameter, in the order of the groups
};

} // namespace troupe
