#pragma once

#include "troupe/trainers/torch/metrics/classification/curve_metric.hpp"

namespace troupe {

/// The area under the curve of precision over recall, as a sum of steps: the
/// mean precision at each element found. Without elements of a class 0, with a
/// warning; the exact curve of a class of many is NaN then and left out of an
/// average.
class average_precision : public curve_metric {
public:
  explicit average_precision(classification_task task,
                             curve_options options = {})
    : curve_metric("average_precision", std::move(task), std::move(options)) {}

private:
  at::Tensor value_of(const ranking_curve& curve) const override;
};

} // namespace troupe
