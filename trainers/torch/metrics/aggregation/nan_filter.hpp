#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/metrics/aggregation/nan_strategy.hpp"

namespace troupe {

/// Finds NaN in the values of one update and does what a strategy says, without
/// waiting for the device unless the strategy is `on_nan::error`.
struct nan_filter {
  /// *strategy* on *values*, and on *weights* if they are given, of equal
  /// shapes. Refuses in the name of the metric called *name*.
  nan_filter(const std::string& name, const nan_strategy& strategy,
             const at::Tensor& values, const at::Tensor& weights = {});

  /// *x*, with *neutral* at the places that are left out, and with
  /// *replacement* at those that the strategy's number replaces.
  at::Tensor fill(const at::Tensor& x, double neutral,
                  double replacement) const;

  /// The same for values: the strategy's number is the replacement.
  at::Tensor fill(const at::Tensor& x, double neutral) const;

  /// The number of places that are left out, int64; 0-d.
  at::Tensor left_out() const;

  at::Tensor found; ///< Where NaN is; undefined if nothing is to be done.
  nan_strategy strategy;
};

} // namespace troupe
