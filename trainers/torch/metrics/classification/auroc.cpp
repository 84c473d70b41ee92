#include "troupe/trainers/torch/metrics/classification/auroc.hpp"

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

at::Tensor rate(const at::Tensor& x, const at::Tensor& all) {
  return at::where(all.ne(0), x / all, 0.0);
}

/// The area under *y* over *x* up to *end*, standardized.
at::Tensor partial_area(const at::Tensor& x, const at::Tensor& y, double end) {
  auto stop = x.le(end).sum().item<std::int64_t>();
  auto left = x[stop - 1];
  auto share = (end - left) / (x[stop] - left);
  auto at_end = at::lerp(y[stop - 1], y[stop], share);
  auto area = at::trapezoid(
    at::cat({y.slice(0, 0, stop), at_end.view({1})}),
    at::cat({x.slice(0, 0, stop), at::full({1}, end, x.options())}));
  auto by_chance = 0.5 * end * end;
  return 0.5 * (1 + (area - by_chance) / (end - by_chance));
}

} // namespace

auroc::auroc(classification_task task, curve_options options,
             std::optional<double> max_false_positive_rate)
  : curve_metric("auroc", std::move(task), std::move(options)),
    max_false_positive_rate_(max_false_positive_rate) {
  if (!max_false_positive_rate_)
    return;
  if (!std::holds_alternative<binary_task>(this->task()))
    refuse_metric(name(), "a partial area takes a binary task");
  if (!(*max_false_positive_rate_ > 0 && *max_false_positive_rate_ <= 1))
    refuse_metric(name(), "the greatest false positive rate is "
                            + std::to_string(*max_false_positive_rate_)
                            + ", but must lie in (0, 1]");
}

at::Tensor auroc::value_of(const ranking_curve& curve) const {
  if (at::logical_or(curve.positives.eq(0), curve.negatives.eq(0)).item<bool>())
    warn_metric(name(), "one class alone has no curve, and counts as 0");
  auto found = rate(curve.true_positives, curve.positives);
  auto wrong = rate(curve.false_positives, curve.negatives);
  auto end = max_false_positive_rate_.value_or(1);
  // Beyond the last point of a binned curve there is nothing to interpolate.
  if (end == 1 || found.sum().item<double>() == 0
      || wrong.max().item<double>() <= end)
    return at::trapezoid(found, wrong);
  return partial_area(wrong, found, end);
}

} // namespace troupe
