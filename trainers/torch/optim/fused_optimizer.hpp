#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// Options of `fused_adam`; names and defaults are those of torch.optim.Adam.
struct adam_options {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0; ///< Added to the gradient.
  bool amsgrad = false;
  bool maximize = false;
};

/// Options of `fused_adamw`; names and defaults are those of torch.optim.AdamW.
struct adamw_options {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2; ///< Shrinks the weights, apart from the gradient.
  bool amsgrad = false;
  bool maximize = false;
};

/// Options of `fused_sgd`; names and defaults are those of torch.optim.SGD.
struct sgd_options {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

/// Parameters that an optimizer treats with the same options.
template <class Options>
struct parameter_group {
  std::vector<at::Tensor> parameters;
  Options options;
};

/// The tensors that Adam and AdamW keep per parameter.
namespace internal::adam_slot {
inline constexpr auto step = "step";
inline constexpr auto exp_avg = "exp_avg";
inline constexpr auto exp_avg_sq = "exp_avg_sq";
inline constexpr auto max_exp_avg_sq = "max_exp_avg_sq";
} // namespace internal::adam_slot

/// The tensor that SGD with momentum keeps per parameter.
namespace internal::sgd_slot {
inline constexpr auto momentum_buffer = "momentum_buffer";
} // namespace internal::sgd_slot

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

  /// Clears the gradients: a step then skips parameters without a new one. With
  /// *set_to_none* false they are zeroed in place, which costs two passes over
  /// memory, and a step updates all of them.
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

  /// Loads everything in *saved* that begins with *prefix*, options too; a
  /// missing option (other than `lr`) keeps its value. Throws `train_error`
  /// that lists what does not fit, and then nothing has changed.
  void load_state(const tensor_map& saved,
                  const std::string& prefix = "optimizer.");

protected:
  /// The optimizer's state of one parameter; empty before its first step.
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

/// Everything of Adam and AdamW except the kernel.
template <class Options>
class adam_base : public fused_optimizer<Options> {
public:
  using typename fused_optimizer<Options>::group_type;

  explicit adam_base(std::vector<at::Tensor> parameters, Options options = {});

  explicit adam_base(std::vector<group_type> groups);

  /// Updates every parameter that has a gradient. Throws `train_error` for a
  /// sparse gradient.
  void step();

protected:
  ~adam_base() = default;
};

/// Adam on ATen's fused kernels: equal to `torch::optim::Adam`, several times
/// as fast.
class fused_adam : public adam_base<adam_options> {
public:
  using adam_base::adam_base;
};

/// AdamW on ATen's fused kernels: equal to `torch::optim::AdamW`, several times
/// as fast.
class fused_adamw : public adam_base<adamw_options> {
public:
  using adam_base::adam_base;
};

/// Stochastic gradient descent on ATen's fused kernels: equal to
/// `torch::optim::SGD`, several times as fast.
class fused_sgd : public fused_optimizer<sgd_options> {
public:
  explicit fused_sgd(std::vector<at::Tensor> parameters,
                     sgd_options options = {});

  explicit fused_sgd(std::vector<group_type> groups);

  /// Updates every parameter that has a gradient. Throws `train_error` for a
  /// sparse gradient.
  void step();
};

} // namespace troupe
