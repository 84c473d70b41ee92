#include "troupe/trainers/torch/metrics/aggregation/mean_metric.hpp"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

mean_metric::mean_metric(nan_strategy strategy)
  : aggregator(strategy),
    sum_(add_state("sum", metric_reduction::sum, at::zeros({}, at::kDouble))),
    weight_(
      add_state("weight", metric_reduction::sum, at::zeros({}, at::kDouble))) {}

void mean_metric::update(const at::Tensor& values, const at::Tensor& weights) {
  accumulate(values.device(), [&] {
    add_weighted(widened(name(), values),
                 widened(name(), weights).to(values.device()));
  });
}

void mean_metric::update(double value, double weight) {
  update(as_tensor(value), as_tensor(weight));
}

at::Tensor mean_metric::forward(const at::Tensor& values,
                                const at::Tensor& weights) {
  return batch_value([&] { update(values, weights); });
}

void mean_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  add_weighted(x, at::ones_like(x));
}

void mean_metric::add_weighted(const at::Tensor& values,
                               const at::Tensor& weights) {
  if (!at::is_expandable_to(weights.sizes(), values.sizes()))
    refuse_metric(name(), "weights of shape " + shape_of(weights)
                            + " do not fit values of shape "
                            + shape_of(values));
  auto w = weights.expand_as(values);
  auto nans = filter(values, w);
  w = nans.fill(w, 0, 1);
  state(sum_) = state(sum_) + (nans.fill(values, 0) * w).sum();
  state(weight_) = state(weight_) + w.sum();
}

at::Tensor mean_metric::result() const {
  warn_of_nans();
  return state(sum_) / state(weight_);
}

} // namespace troupe
