#pragma once

#include "troupe/trainers/torch/metrics/prediction_metric.hpp"

namespace troupe {

/// Metrics that compare squared errors with the variance of the targets, for
/// each output: they share the sums of t, t^2, p - t and (p - t)^2.
class target_moments : public prediction_metric {
public:
  std::string state_key() const final { return "target_moments"; }

protected:
  target_moments();

  const at::Tensor& targets() const { return state(targets_); }
  const at::Tensor& squared_targets() const { return state(squared_targets_); }
  const at::Tensor& errors() const { return state(errors_); }
  const at::Tensor& squared_errors() const { return state(squared_errors_); }

  /// int64, 0-d.
  const at::Tensor& samples() const { return state(samples_); }

private:
  void add(const at::Tensor& preds, const at::Tensor& target) final;

  std::size_t targets_;
  std::size_t squared_targets_;
  std::size_t errors_;
  std::size_t squared_errors_;
  std::size_t samples_;
};

} // namespace troupe
