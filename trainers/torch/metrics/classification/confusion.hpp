#pragma once

#include <string>

#include "troupe/trainers/torch/metrics/classification/label_batch.hpp"

// Metrics of the confusion matrix, how often each class was predicted for each
// target, defined as in TorchMetrics 1.9 (torchmetrics.classification). Every
// task takes its own predictions and targets.

namespace troupe {

/// Base of metrics of the confusion matrix. Those of one task share their
/// states in a collection.
class confusion_metric : public internal::label_metric {
public:
  std::string state_key() const override {
    return "confusion of " + to_string(task());
  }

protected:
  confusion_metric(std::string name, classification_task task);

  /// int64: targets x predictions; labels x 2 x 2 for a multilabel task.
  at::Tensor confusion() const;

private:
  void count(const internal::label_batch& batch) final;

  std::size_t cells_;
};

/// What the cells of a confusion matrix are divided by.
enum class normalization {
  none,    ///< Nothing: they are counts.
  rows,    ///< The number of targets of the class.
  columns, ///< The number of predictions of the class.
  all,     ///< The number of elements.
};

/// How often each class (column) was predicted for each target (row).
///
/// Of shape (classes x classes), (2 x 2) for a binary task, (labels x 2 x 2)
/// for a multilabel task. int64, or double if normalized; rows, columns or
/// matrices without elements are then zeros, with a warning.
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

/// The weight of an error, by the distance of prediction and target.
enum class kappa_weights {
  none,      ///< All errors have the same weight.
  linear,    ///< The difference of the classes.
  quadratic, ///< Its square.
};

/// Cohen's kappa, the agreement of targets and predictions beyond chance: 1 -
/// observed / expected disagreement, 0-d double. NaN without elements, and if
/// chance would always agree.
class cohen_kappa : public confusion_metric {
public:
  /// Throws on a multilabel task.
  explicit cohen_kappa(classification_task task,
                       kappa_weights weights = kappa_weights::none);

private:
  at::Tensor score() const override;

  kappa_weights weights_;
};

/// The Matthews correlation coefficient of targets and predictions, from -1 to
/// 1, 0-d double; in a multilabel task of all labels together. Of two classes,
/// 1 if all predictions are right and -1 if all are wrong; otherwise 0 if
/// targets or predictions are all of one class.
class matthews_correlation : public confusion_metric {
public:
  explicit matthews_correlation(classification_task task)
    : confusion_metric("matthews_correlation", std::move(task)) {}

private:
  at::Tensor score() const override;
};

} // namespace troupe
