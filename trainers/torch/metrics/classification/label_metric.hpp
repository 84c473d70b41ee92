#pragma once

#include <string>

#include "troupe/trainers/torch/metrics/classification/classification_task.hpp"
#include "troupe/trainers/torch/metrics/classification/label_batch.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// A metric of decided labels: which class was predicted, which is right.
///
/// A label outside of the classes is refused: on the CPU by the update, on
/// another device, which an update never waits for, by `compute`.
class label_metric : public prediction_metric {
public:
  std::string name() const override { return name_; }

  const classification_task& task() const noexcept { return task_; }

protected:
  /// Refuses a *task* that makes no sense.
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
};

} // namespace troupe
