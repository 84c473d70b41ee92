#pragma once

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// A metric that compares predictions with what they should be.
class prediction_metric : public metric {
public:
  /// Accumulates one batch. Both tensors are on one device; what shapes and
  /// types fit is up to the metric, a misfit throws and changes nothing. An
  /// empty batch counts nothing.
  void update(const at::Tensor& preds, const at::Tensor& target);

  /// Accumulates one batch and returns its value alone, on this rank alone.
  at::Tensor forward(const at::Tensor& preds, const at::Tensor& target);

  at::Tensor operator()(const at::Tensor& preds, const at::Tensor& target) {
    return forward(preds, target);
  }

protected:
  /// Accumulates one batch into the states.
  virtual void add(const at::Tensor& preds, const at::Tensor& target) = 0;

  /// Refuses tensors of different shapes, naming both.
  void check_same_shape(const at::Tensor& preds,
                        const at::Tensor& target) const;
};

} // namespace troupe
