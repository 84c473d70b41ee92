#pragma once

#include "troupe/trainers/torch/metrics/aggregation/aggregator.hpp"

namespace troupe {

/// The weighted mean of all elements, sum of value times weight over sum of
/// weights, double; NaN without weight.
class mean_metric final : public aggregator {
public:
  explicit mean_metric(nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "mean"; }

  using value_metric::forward;
  using value_metric::update;

  /// Accumulates *values* with *weights* of the same shape, or of one that is
  /// broadcast to it. NaN in either is NaN; a number that replaces it has
  /// weight 1.
  void update(const at::Tensor& values, const at::Tensor& weights);
  void update(double value, double weight);

  at::Tensor forward(const at::Tensor& values, const at::Tensor& weights);

private:
  void add(const at::Tensor& values) override;
  void add_weighted(const at::Tensor& values, const at::Tensor& weights);
  at::Tensor result() const override;

  std::size_t sum_;
  std::size_t weight_;
};

} // namespace troupe
