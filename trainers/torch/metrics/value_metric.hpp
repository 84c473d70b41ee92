#pragma once

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// A metric of plain values: a mean, a largest one.
class value_metric : public metric {
public:
  /// Accumulates all elements of *values*.
  void update(const at::Tensor& values);
  void update(double value);

  /// Accumulates and returns the value of this batch alone, on this rank alone.
  at::Tensor forward(const at::Tensor& values);
  at::Tensor forward(double value);

  at::Tensor operator()(const at::Tensor& values) { return forward(values); }
  at::Tensor operator()(double value) { return forward(value); }

protected:
  /// Accumulates *values*.
  virtual void add(const at::Tensor& values) = 0;

  /// *x* as a tensor where the states are, so that it moves nothing.
  at::Tensor as_tensor(double x) const;
};

} // namespace troupe
