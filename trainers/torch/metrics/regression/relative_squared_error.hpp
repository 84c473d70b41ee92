#pragma once

#include "troupe/trainers/torch/metrics/regression/target_moments.hpp"

namespace troupe {

/// The sum of (p - t)^2 over the sum of (t - mean t)^2, or the root of that;
/// the mean over outputs of inputs [samples, outputs].
class relative_squared_error final : public target_moments {
public:
  /// *squared*: false for the root.
  explicit relative_squared_error(bool squared = true);

  /// "relative_squared_error" or "root_relative_squared_error".
  std::string name() const override;

private:
  at::Tensor result() const override;

  bool squared_;
};

} // namespace troupe
