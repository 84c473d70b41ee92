#pragma once

#include <optional>

#include "troupe/trainers/torch/metrics/classification/curve_metric.hpp"

namespace troupe {

/// The area under the receiver operating characteristic: how likely an element
/// of the class has a higher score than one of another class. 0, with a
/// warning, without elements of the class, or without others.
class auroc : public curve_metric {
public:
  /// With *max_false_positive_rate*, the area up to there, standardized by
  /// McClish's correction to 0.5 for chance and 1 at best; of a binary task
  /// alone. Refuses one outside of (0, 1].
  explicit auroc(classification_task task, curve_options options = {},
                 std::optional<double> max_false_positive_rate = {});

private:
  at::Tensor value_of(const ranking_curve& curve) const override;

  std::optional<double> max_false_positive_rate_;
};

} // namespace troupe
