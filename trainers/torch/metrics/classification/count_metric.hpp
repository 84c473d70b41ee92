#pragma once

#include "troupe/trainers/torch/metrics/classification/label_metric.hpp"

namespace troupe {

/// A metric of the numbers of true and false positives and negatives of each
/// class, which all such metrics of one task share in a collection.
class count_metric : public label_metric {
public:
  std::string state_key() const override {
    return "counts of " + to_string(task());
  }

protected:
  count_metric(std::string name, classification_task task);

  /// int64, 4 x classes: true positives, false positives, true negatives,
  /// false negatives.
  const at::Tensor& counts() const;

private:
  void count(const label_batch& batch) final;
};

} // namespace troupe
