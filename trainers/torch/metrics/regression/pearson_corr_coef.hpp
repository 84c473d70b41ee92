#pragma once

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// Pearson's correlation of predictions and targets in [-1, 1], for each output
/// of inputs [samples] or [samples, outputs]. NaN, with a warning, where one
/// side hardly varies or there are fewer than two samples.
///
/// Keeps means and centred sums and combines those of batches and ranks by the
/// parallel algorithm of Chan, Golub and LeVeque (1979), so that far-off values
/// cancel nothing.
class pearson_corr_coef final : public prediction_metric {
public:
  explicit pearson_corr_coef(std::int64_t num_outputs = 1);

  std::string name() const override { return "pearson_corr_coef"; }
  std::string state_key() const override;

private:
  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;
  void combine(metric_states& into, const metric_states& from) const override;

  std::int64_t num_outputs_;
};

} // namespace troupe
