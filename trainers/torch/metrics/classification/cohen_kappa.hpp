#pragma once

#include "troupe/trainers/torch/metrics/classification/confusion_metric.hpp"

namespace troupe {

/// How much it matters by how many classes a prediction misses its target.
enum class kappa_weights {
  none,      ///< Not at all: all misses are alike.
  linear,    ///< By the distance of the classes.
  quadratic, ///< By its square.
};

/// Cohen's kappa: how much better targets and predictions agree than chance
/// would have it; 1 - observed / expected disagreement. NaN without elements,
/// and where chance would agree always.
class cohen_kappa : public confusion_metric {
public:
  /// Refuses a multilabel task.
  explicit cohen_kappa(classification_task task,
                       kappa_weights weights = kappa_weights::none);

private:
  at::Tensor score() const override;

  kappa_weights weights_;
};

} // namespace troupe
