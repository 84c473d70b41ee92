#pragma once

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// Metrics that compare errors with the variance of the targets, for each
/// output: they share the means of t and p - t, the sums of squared distances
/// from these means, and the sum of (p - t)^2.
///
/// Sums of t^2 would lose a small variance of large targets, such as times
/// since 1970. Batches and ranks are combined by the parallel algorithm of
/// Chan, Golub and LeVeque (1979).
class target_moments : public prediction_metric {
public:
  std::string state_key() const final { return "target_moments"; }

protected:
  target_moments();

  /// Sum of (t - mean t)^2.
  const at::Tensor& target_variation() const;

  /// Sum of (e - mean e)^2 of the errors e = p - t.
  const at::Tensor& error_variation() const;

  /// Sum of (p - t)^2.
  const at::Tensor& squared_errors() const;

  /// int64, 0-d.
  const at::Tensor& samples() const;

private:
  void add(const at::Tensor& preds, const at::Tensor& target) final;
  void combine(metric_states& into, const metric_states& from) const final;
};

} // namespace troupe
