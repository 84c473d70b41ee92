#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "troupe/trainers/torch/optim/fused_optimizer.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

// The steps of the fused optimizers.
namespace troupe {

using namespace internal;

namespace {

/// The tensor *name* of every slot, in order.
std::vector<at::Tensor> column(const std::vector<tensor_map*>& slots,
                               const char* name) {
  std::vector<at::Tensor> result;
  result.reserve(slots.size());
  for (const auto* slot : slots)
    result.push_back(slot->at(name));
  return result;
}

/// The state that Adam and AdamW give to one call of their kernel.
struct adam_columns {
  std::vector<at::Tensor> exp_avgs;
  std::vector<at::Tensor> exp_avg_sqs;
  std::vector<at::Tensor> max_exp_avg_sqs; ///< Empty without amsgrad.
  std::vector<at::Tensor> steps;
};

/// Makes the state of parameters that take their first step and counts the step
/// of all.
adam_columns begin_adam_step(const std::vector<at::Tensor>& parameters,
                             const std::vector<tensor_map*>& slots,
                             bool amsgrad) {
  auto add = [](tensor_map& slot, const char* name, const at::Tensor& like) {
    if (!slot.contains(name))
      slot[name] = at::zeros_like(like);
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto x = parameters[i].detach();
    auto& slot = *slots[i];
    if (!slot.contains(adam_slot::step))
      slot[adam_slot::step] = at::zeros({}, x.options().dtype(at::kFloat));
    add(slot, adam_slot::exp_avg, x);
    add(slot, adam_slot::exp_avg_sq, x);
    if (amsgrad)
      add(slot, adam_slot::max_exp_avg_sq, x);
  }
  adam_columns result{column(slots, adam_slot::exp_avg),
                      column(slots, adam_slot::exp_avg_sq),
                      {},
                      column(slots, adam_slot::step)};
  if (amsgrad)
    result.max_exp_avg_sqs = column(slots, adam_slot::max_exp_avg_sq);
  at::_foreach_add_(result.steps, 1);
  return result;
}

/// Arguments of one call of the kernel, which knows only first steps or later
/// ones.
struct sgd_lists {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> buffers;
};

void run_kernel(sgd_lists& x, const sgd_options& options, bool first) {
  if (!x.parameters.empty())
    at::_fused_sgd_(x.parameters, x.gradients, x.buffers, options.weight_decay,
                    options.momentum, options.lr, options.dampening,
                    options.nesterov, options.maximize, first);
}

} // namespace

template <class Options>
adam_base<Options>::adam_base(std::vector<at::Tensor> parameters,
                              Options options)
  : adam_base(std::vector<group_type>{{std::move(parameters), options}}) {}

template <class Options>
adam_base<Options>::adam_base(std::vector<group_type> groups)
  : fused_optimizer<Options>(std::move(groups)) {}

template <class Options>
void adam_base<Options>::step() {
  auto kernel = [](const auto&... arguments) {
    if constexpr (std::is_same_v<Options, adam_options>)
      at::_fused_adam_(arguments...);
    else
      at::_fused_adamw_(arguments...);
  };
  const c10::NoGradGuard no_grad;
  for (std::size_t g = 0; g < this->groups_.size(); ++g) {
    const auto& options = this->groups_[g].options;
    for (auto& x : this->due(g)) {
      auto state = begin_adam_step(x.parameters, x.slots, options.amsgrad);
      kernel(x.parameters, x.gradients, state.exp_avgs, state.exp_avg_sqs,
             state.max_exp_avg_sqs, state.steps, options.lr,
             options.betas.first, options.betas.second, options.weight_decay,
             options.eps, options.amsgrad, options.maximize);
    }
  }
}

fused_sgd::fused_sgd(std::vector<at::Tensor> parameters, sgd_options options)
  : fused_sgd(std::vector<group_type>{{std::move(parameters), options}}) {}

fused_sgd::fused_sgd(std::vector<group_type> groups)
  : fused_optimizer(std::move(groups)) {
  for (const auto& group : groups_)
    if (group.options.nesterov
        && (group.options.momentum <= 0 || group.options.dampening != 0))
      throw_invalid_argument(
        "Nesterov momentum needs a momentum and no dampening");
}

void fused_sgd::step() {
  const c10::NoGradGuard no_grad;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& options = groups_[g].options;
    for (auto& x : due(g)) {
      sgd_lists first;
      sgd_lists later;
      std::vector<tensor_map*> empty_slots;
      for (std::size_t i = 0; i < x.parameters.size(); ++i) {
        auto& slot = *x.slots[i];
        auto begins = options.momentum != 0 && slot.empty();
        auto& target = begins ? first : later;
        if (begins) {
          target.buffers.push_back(at::empty_like(x.parameters[i].detach()));
          empty_slots.push_back(&slot);
        } else if (options.momentum != 0) {
          target.buffers.push_back(slot.at(sgd_slot::momentum_buffer));
        }
        target.parameters.push_back(x.parameters[i]);
        target.gradients.push_back(x.gradients[i]);
      }
      run_kernel(first, options, true);
      // Only now they have values.
      for (std::size_t i = 0; i < empty_slots.size(); ++i)
        (*empty_slots[i])[sgd_slot::momentum_buffer] = first.buffers[i];
      run_kernel(later, options, false);
    }
  }
}

template class adam_base<adam_options>;
template class adam_base<adamw_options>;

} // namespace troupe
