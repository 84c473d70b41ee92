#pragma once

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// The sum of |p - t| over max(the sum of |t|, `smallest_divisor`): 1 is 100 %.
/// 0 without samples.
class weighted_mean_absolute_percentage_error final : public prediction_metric {
public:
  weighted_mean_absolute_percentage_error();

  std::string name() const override {
    return "weighted_mean_absolute_percentage_error";
  }

private:
  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;

  std::size_t errors_;
  std::size_t targets_;
};

} // namespace troupe
