#pragma once

#include "troupe/trainers/torch/metrics/regression/mean_error.hpp"

namespace troupe {

/// The mean of (log(1 + p) - log(1 + t))^2. That all elements are above -1 is
/// the caller's duty.
class mean_squared_log_error final : public mean_error {
public:
  mean_squared_log_error();

  std::string name() const override { return "mean_squared_log_error"; }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

} // namespace troupe
