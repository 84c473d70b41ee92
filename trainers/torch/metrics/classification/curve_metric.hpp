#pragma once

#include <string>

#include "troupe/trainers/torch/metrics/classification/classification_task.hpp"
#include "troupe/trainers/torch/metrics/classification/curve_options.hpp"
#include "troupe/trainers/torch/metrics/classification/label_batch.hpp"
#include "troupe/trainers/torch/metrics/classification/ranking_curve.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// A metric of how well the scores of each class rank its elements above the
/// others. All such metrics of one task and the same thresholds share their
/// states in a collection.
///
/// Takes scores alone: N x classes x ... (or as the task says) of a float type.
/// If the task does not say what they are, an exact curve takes all of them,
/// over all batches and ranks, for logits if any lies outside of [0, 1]. A
/// binned one decides batch by batch, and refuses to compute from batches that
/// seem to be of both kinds. What a task's threshold and top_k are does not
/// matter here.
class curve_metric : public prediction_metric {
public:
  std::string name() const override { return name_; }
  std::string state_key() const override;

  const classification_task& task() const noexcept { return task_; }

protected:
  curve_metric(std::string name, classification_task task,
               curve_options options);

  bool exact() const noexcept { return !thresholds_.defined(); }

  /// The value of one curve, 0-d; NaN leaves it out of an average.
  virtual at::Tensor value_of(const ranking_curve& curve) const = 0;

private:
  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;

  void keep(const score_batch& batch);
  void count(const score_batch& batch);
  std::vector<ranking_curve> exact_curves() const;
  std::vector<ranking_curve> binned_curves() const;

  std::string name_;
  classification_task task_;
  troupe::average average_;
  at::Tensor thresholds_; ///< Double, 1-d; undefined if exact.
};

} // namespace troupe
