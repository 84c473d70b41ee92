#include "troupe/trainers/torch/optim/fused_adam.hpp"

#include <utility>

#include <ATen/ops/_fused_adam.h>

#include "troupe/trainers/torch/optim/adam_step.hpp"

namespace troupe {

fused_adam::fused_adam(std::vector<at::Tensor> parameters, adam_options options)
  : fused_adam(std::vector<group_type>{{std::move(parameters), options}}) {}

fused_adam::fused_adam(std::vector<group_type> groups)
  : fused_optimizer(std::move(groups)) {}

void fused_adam::step() {
  const c10::NoGradGuard no_grad;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& options = groups_[g].options;
    for (auto& x : due(g)) {
      auto state = begin_adam_step(x.parameters, x.slots, options.amsgrad);
      at::_fused_adam_(x.parameters, x.gradients, state.exp_avgs,
                       state.exp_avg_sqs, state.max_exp_avg_sqs, state.steps,
                       options.lr, options.betas.first, options.betas.second,
                       options.weight_decay, options.eps, options.amsgrad,
                       options.maximize);
    }
  }
}

} // namespace troupe
