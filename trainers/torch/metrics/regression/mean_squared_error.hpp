#pragma once

#include "troupe/trainers/torch/metrics/regression/mean_error.hpp"

namespace troupe {

struct mean_squared_error_options {
  bool squared = true; ///< false: the root of the mean (RMSE).
  std::int64_t num_outputs = 1;
};

/// The mean of (p - t)^2, or its root.
class mean_squared_error final : public mean_error {
public:
  using options = mean_squared_error_options;

  explicit mean_squared_error(options x = {});

  /// "mean_squared_error" or "root_mean_squared_error".
  std::string name() const override;

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
  at::Tensor result() const override;

  bool squared_;
};

} // namespace troupe
