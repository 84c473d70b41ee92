#include "troupe/trainers/torch/metrics/classification/matthews_correlation.hpp"

#include <ATen/Functions.h>

namespace troupe {

at::Tensor matthews_correlation::score() const {
  auto cells = confusion().to(at::kDouble);
  if (cells.dim() == 3)
    cells = cells.sum(0);
  auto targets = cells.sum(1);
  auto predictions = cells.sum(0);
  auto right = cells.trace();
  auto all = cells.sum();
  auto covariance = right * all - targets.dot(predictions);
  auto variances = (all.square() - predictions.dot(predictions))
                   * (all.square() - targets.dot(targets));
  auto value = at::where(variances.ne(0), covariance / variances.sqrt(), 0.0);
  if (cells.size(0) > 2)
    return value;
  auto only_right =
    at::where(right.gt(0).logical_and(right.eq(all)), 1.0, value);
  return at::where(right.eq(0).logical_and(all.gt(0)), -1.0, only_right);
}

} // namespace troupe
