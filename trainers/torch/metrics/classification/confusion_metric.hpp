#pragma once

#include "troupe/trainers/torch/metrics/classification/label_metric.hpp"

namespace troupe {

/// A metric of how often each class was predicted for each other one, which all
/// such metrics of one task share in a collection.
class confusion_metric : public label_metric {
public:
  std::string state_key() const override {
    return "confusion of " + to_string(task());
  }

protected:
  confusion_metric(std::string name, classification_task task);

  /// int64: targets x predictions, of a multilabel task labels x 2 x 2.
  at::Tensor confusion() const;

private:
  void count(const label_batch& batch) final;
};

} // namespace troupe
