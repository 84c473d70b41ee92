#pragma once

#include <string>

#include "troupe/trainers/torch/metrics/classification/task.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe::internal {

/// One batch with its predictions decided: int64 labels.
///
/// Shapes are samples x positions for a multiclass task, otherwise elements x
/// `columns_of(task)`.
struct label_batch {
  at::Tensor preds;
  at::Tensor target;  ///< 0 where ignored.
  at::Tensor counted; ///< Bool; undefined if nothing is ignored.
  at::Tensor range;   ///< Of all labels, as of `range_of`.
};

/// One batch whose predictions remain scores.
struct score_batch {
  at::Tensor scores; ///< Elements x columns, as given.
  at::Tensor target; ///< int64, -1 where ignored; 1-d for a multiclass task.
  at::Tensor range;  ///< Of the targets, as of `range_of`.
};

/// Makes a batch of *preds* and *target*. Throws in the name of *metric* on
/// shapes and types that do not fit the task, and on the CPU also on labels
/// that are not among its classes. On other devices that check would wait for
/// the device: labels are clamped there, and `check_range` finds out later.
label_batch make_label_batch(const std::string& metric,
                             const classification_task& task,
                             const at::Tensor& preds, const at::Tensor& target);

/// The same, with scores.
score_batch keep_scores(const std::string& metric,
                        const classification_task& task,
                        const at::Tensor& preds, const at::Tensor& target);

/// Whether any of *scores* lies outside [0, 1], as a 0-d tensor.
at::Tensor any_outside(const at::Tensor& scores);

/// The probabilities of *scores*, elements x columns, of the kind that *task*
/// names; by default logits if any lies outside [0, 1]. NaN stays NaN.
at::Tensor as_probabilities(const classification_task& task,
                            const at::Tensor& scores);

/// (-lowest, highest) of *labels*. `at::maximum` joins ranges.
at::Tensor range_of(const at::Tensor& labels);

/// The range of no labels, (0, 0).
at::Tensor no_range();

/// Throws if *range* exceeds the classes 0 to *classes* - 1, and names the
/// label. Waits for the device.
void check_range(const std::string& metric, const at::Tensor& range,
                 std::int64_t classes);

/// Base of metrics of decided labels, predicted and target.
///
/// A label that is not among the classes is an error: on the CPU of the update,
/// on another device, for which updates do not wait, of `compute`.
class label_metric : public prediction_metric {
public:
  std::string name() const override { return name_; }

  const classification_task& task() const noexcept { return task_; }

protected:
  /// Throws if *task* is invalid.
  label_metric(std::string name, classification_task task);

  /// Accumulates one batch.
  virtual void count(const label_batch& batch) = 0;

  /// The value of the states as they are.
  virtual at::Tensor score() const = 0;

private:
  void add(const at::Tensor& preds, const at::Tensor& target) final;
  at::Tensor result() const final;

  std::string name_;
  classification_task task_;
  std::size_t range_;
};

} // namespace troupe::internal
