#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/trainers/torch/metrics/classification/label_batch.hpp"

// Metrics of how well the scores of each class rank its elements above the
// others, defined as in TorchMetrics 1.9 (torchmetrics.classification).
// Predictions are scores of a float type, of the task's shape; values are 0-d
// double, or of shape (classes) with `average::none`.

namespace troupe {

/// Which points of a curve are kept, and how several curves are averaged.
struct curve_options {
  /// A multiclass task takes no micro average.
  troupe::average average = troupe::average::macro;
  /// Number of thresholds, evenly spaced from 0 to 1. With 0 there is one for
  /// each score: the curve is exact, and all scores are kept (8 bytes each).
  std::int64_t bins = 0;
  /// Or these thresholds, in ascending order.
  std::vector<double> thresholds = {};
};

/// How many elements of a class, and of others, have scores above each
/// threshold, from the highest threshold down. All double.
struct ranking_curve {
  at::Tensor true_positives;  ///< 1-d, never descending.
  at::Tensor false_positives; ///< As long.
  at::Tensor positives;       ///< 0-d: elements of the class.
  at::Tensor negatives;       ///< 0-d: elements of other classes.
};

/// Base of metrics of curves. Those of one task and the same thresholds share
/// their states in a collection.
///
/// If the task does not set the kind of scores, an exact curve takes all
/// scores, over all batches and ranks, for logits if any lies outside [0, 1]. A
/// binned curve decides batch by batch, and `compute` throws if the batches
/// seem to be of both kinds. The task's threshold and top_k have no effect.
class curve_metric : public prediction_metric {
public:
  std::string name() const override { return name_; }
  std::string state_key() const override;

  const classification_task& task() const noexcept { return task_; }

protected:
  /// Throws if *task* is invalid, on a micro average of classes, and on fewer
  /// than two bins or thresholds that do not ascend within [0, 1].
  curve_metric(std::string name, classification_task task,
               curve_options options);

  bool exact() const noexcept { return !thresholds_.defined(); }

  /// The value of one curve, 0-d; NaN excludes it from an average.
  virtual at::Tensor value_of(const ranking_curve& curve) const = 0;

private:
  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;

  void keep(const internal::score_batch& batch);
  void count(const internal::score_batch& batch);
  std::vector<ranking_curve> exact_curves() const;
  std::vector<ranking_curve> binned_curves() const;

  std::string name_;
  classification_task task_;
  troupe::average average_;
  at::Tensor thresholds_; // Double, 1-d; undefined if exact.
  std::size_t range_;
  // Exact:
  std::size_t scores_ = 0;
  std::size_t targets_ = 0;
  // Binned, each columns x (bins + 1):
  std::size_t positives_ = 0;
  std::size_t negatives_ = 0;
  std::size_t kinds_ = 0; // 1 if a batch was inside [0, 1]; 1 if outside.
};

/// The area under the receiver operating characteristic: the probability that
/// an element of the class has a higher score than one of another class. 0,
/// with a warning, if there are no elements of the class or no others.
class auroc : public curve_metric {
public:
  /// With *max_false_positive_rate*, the partial area up to it, standardized by
  /// McClish (1989) to 0.5 for chance and 1 at best; only for a binary task.
  /// Throws if it is not in (0, 1].
  explicit auroc(classification_task task, curve_options options = {},
                 std::optional<double> max_false_positive_rate = {});

private:
  at::Tensor value_of(const ranking_curve& curve) const override;

  std::optional<double> max_false_positive_rate_;
};

/// The area under the curve of precision over recall, summed in steps:
/// sum (recall_i - recall_(i-1)) precision_i.
///
/// 0, with a warning, without elements of a class; in a multiclass task with an
/// exact curve it is NaN instead, which an average leaves out.
class average_precision : public curve_metric {
public:
  explicit average_precision(classification_task task,
                             curve_options options = {})
    : curve_metric("average_precision", std::move(task), std::move(options)) {}

private:
  at::Tensor value_of(const ranking_curve& curve) const override;
};

} // namespace troupe
