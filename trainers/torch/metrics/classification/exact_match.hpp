#pragma once

#include "troupe/trainers/torch/metrics/classification/label_metric.hpp"

namespace troupe {

/// The share of samples of which all labels are right: of a multiclass task
/// those at all positions N x ..., of a multilabel task those of all labels.
/// Positions that are ignored count as right. 0 without samples.
class exact_match : public label_metric {
public:
  /// Refuses a binary task.
  explicit exact_match(classification_task task);

  std::string state_key() const override {
    return "exact matches of " + to_string(task());
  }

private:
  void count(const label_batch& batch) override;
  at::Tensor score() const override;
};

} // namespace troupe
