#include "troupe/trainers/torch/metrics/regression/target_moments.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/checked_inputs.hpp"
#include "troupe/trainers/torch/metrics/regression/multioutput.hpp"

namespace troupe {

target_moments::target_moments() {
  auto add_sum = [this](const char* name) {
    return add_state(name, metric_reduction::sum, at::zeros({}, at::kDouble));
  };
  targets_ = add_sum("targets");
  squared_targets_ = add_sum("squared_targets");
  errors_ = add_sum("errors");
  squared_errors_ = add_sum("squared_errors");
  samples_ =
    add_state("samples", metric_reduction::sum, at::zeros({}, at::kLong));
}

void target_moments::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  check_outputs(name(), target, targets(), updates() == 0);
  auto t = widened(name(), target);
  auto error = widened(name(), preds) - t;
  state(targets_) = targets() + t.sum(0);
  state(squared_targets_) = squared_targets() + t.square().sum(0);
  state(errors_) = errors() + error.sum(0);
  state(squared_errors_) = squared_errors() + error.square().sum(0);
  state(samples_) = samples() + t.size(0);
}

} // namespace troupe
