#include "troupe/trainers/torch/metrics/classification/average_precision.hpp"

#include <cmath>

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

at::Tensor average_precision::value_of(const ranking_curve& curve) const {
  if (curve.positives.item<double>() == 0) {
    const auto unknown = exact() && is_multiclass(task());
    warn_metric(name(), unknown ? "a class is never the target, and left out"
                                : "without elements of a class it is 0");
    return at::full_like(curve.positives, unknown ? NAN : 0.0);
  }
  auto found = curve.true_positives + curve.false_positives;
  auto precision = at::where(found.ne(0), curve.true_positives / found, 0.0);
  auto recall = curve.true_positives / curve.positives;
  auto before = at::zeros({1}, recall.options());
  return (at::diff(recall, 1, 0, before) * precision).sum();
}

} // namespace troupe
