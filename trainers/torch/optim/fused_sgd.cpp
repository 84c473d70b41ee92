#include "troupe/trainers/torch/optim/fused_sgd.hpp"

#include <utility>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "troupe/trainers/torch/optim/slot_tensors.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

namespace {

/// Arguments of one call of the kernel, which knows only first steps or later
/// ones.
struct sgd_lists {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> buffers;
};

void run(sgd_lists& x, const sgd_options& options, bool first) {
  if (!x.parameters.empty())
    at::_fused_sgd_(x.parameters, x.gradients, x.buffers, options.weight_decay,
                    options.momentum, options.lr, options.dampening,
                    options.nesterov, options.maximize, first);
}

} // namespace

fused_sgd::fused_sgd(std::vector<at::Tensor> parameters, sgd_options options)
  : fused_sgd(std::vector<group_type>{{std::move(parameters), options}}) {}

fused_sgd::fused_sgd(std::vector<group_type> groups)
  : fused_optimizer(std::move(groups)) {
  for (const auto& group : groups_)
    if (group.options.nesterov
        && (group.options.momentum <= 0 || group.options.dampening != 0))
      throw train_error{
        {ec::invalid_argument,
         "Nesterov momentum needs a momentum and no dampening"}};
}

void fused_sgd::step() {
  const c10::NoGradGuard no_grad;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& options = groups_[g].options;
    for (auto& x : due(g)) {
      sgd_lists first;
      sgd_lists later;
      for (std::size_t i = 0; i < x.parameters.size(); ++i) {
        auto& slot = *x.slots[i];
        auto& target = options.momentum != 0 && slot.empty() ? first : later;
        if (options.momentum != 0) {
          auto& buffer = slot[sgd_slot::momentum_buffer];
          if (!buffer.defined())
            buffer = at::empty_like(x.parameters[i].detach());
          target.buffers.push_back(buffer);
        }
        target.parameters.push_back(x.parameters[i]);
        target.gradients.push_back(x.gradients[i]);
      }
      run(first, options, true);
      run(later, options, false);
    }
  }
}

} // namespace troupe
