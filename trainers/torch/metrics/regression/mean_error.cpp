#include "troupe/trainers/torch/metrics/regression/mean_error.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

at::Tensor no_error(std::int64_t num_outputs) {
  if (num_outputs < 1)
    refuse_metric("regression", "needs at least one output, not "
                                  + std::to_string(num_outputs));
  return num_outputs == 1 ? at::zeros({}, at::kDouble)
                          : at::zeros({num_outputs}, at::kDouble);
}

} // namespace

std::string mean_error::state_key() const {
  return kind_ + '/' + std::to_string(num_outputs_);
}

mean_error::mean_error(std::string kind, std::int64_t num_outputs)
  : kind_(std::move(kind)), num_outputs_(num_outputs),
    sum_(add_state("sum", metric_reduction::sum, no_error(num_outputs))),
    samples_(
      add_state("samples", metric_reduction::sum, at::zeros({}, at::kLong))) {}

void mean_error::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  if (num_outputs_ > 1 && (preds.dim() != 2 || preds.size(1) != num_outputs_))
    refuse_metric(name(), "takes [samples, " + std::to_string(num_outputs_)
                            + "], not " + shape_of(preds));
  auto error = errors(widened(name(), preds), widened(name(), target));
  auto one = num_outputs_ == 1;
  state(sum_) = state(sum_) + (one ? error.sum() : error.sum(0));
  state(samples_) = state(samples_) + (one ? preds.numel() : preds.size(0));
}

at::Tensor mean_error::result() const {
  return state(sum_) / state(samples_);
}

} // namespace troupe
