#pragma once

#include "troupe/trainers/torch/metrics/classification/confusion_metric.hpp"

namespace troupe {

/// What the cells of a confusion matrix are divided by.
enum class normalization {
  none,    ///< They are counts.
  rows,    ///< By how often a class is the target.
  columns, ///< By how often a class is predicted.
  all,     ///< By the number of elements.
};

/// How often each class (column) was predicted for each target (row): of shape
/// (classes x classes), (2 x 2) of a binary task, (labels x 2 x 2) of a
/// multilabel task. int64, or double if normalized: then rows, columns or
/// matrices that are empty have zeros, with a warning.
class confusion_matrix : public confusion_metric {
public:
  explicit confusion_matrix(classification_task task,
                            normalization normalize = normalization::none)
    : confusion_metric("confusion_matrix", std::move(task)),
      normalize_(normalize) {}

private:
  at::Tensor score() const override;

  normalization normalize_;
};

} // namespace troupe
