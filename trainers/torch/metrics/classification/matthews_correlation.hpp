#pragma once

#include "troupe/trainers/torch/metrics/classification/confusion_metric.hpp"

namespace troupe {

/// The correlation of targets and predictions as Matthews defines it, from -1
/// to 1; of a multilabel task that of all labels as one. With two classes, 1 if
/// all is right and -1 if all is wrong; else 0 where targets or predictions are
/// of one class alone.
class matthews_correlation : public confusion_metric {
public:
  explicit matthews_correlation(classification_task task)
    : confusion_metric("matthews_correlation", std::move(task)) {}

private:
  at::Tensor score() const override;
};

} // namespace troupe
