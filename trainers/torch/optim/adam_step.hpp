#pragma once

#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "troupe/trainers/torch/optim/slot_tensors.hpp"

namespace troupe {

/// The state that Adam and AdamW give to one call of their kernel.
struct adam_columns {
  std::vector<at::Tensor> exp_avgs;
  std::vector<at::Tensor> exp_avg_sqs;
  std::vector<at::Tensor> max_exp_avg_sqs; ///< Empty without amsgrad.
  std::vector<at::Tensor> steps;
};

/// Makes the state of parameters that take their first step and counts the step
/// of all.
inline adam_columns begin_adam_step(const std::vector<at::Tensor>& parameters,
                                    const std::vector<tensor_map*>& slots,
                                    bool amsgrad) {
  auto add = [](tensor_map& slot, const char* name, const at::Tensor& like) {
    if (!slot.contains(name))
      slot[name] = at::zeros_like(like);
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto x = parameters[i].detach();
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

} // namespace troupe
