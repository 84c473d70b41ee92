#pragma once

#include "troupe/trainers/torch/metrics/regression/mean_error.hpp"

namespace troupe {

/// The mean of 2 |p - t| / max(|t| + |p|, `smallest_divisor`).
class symmetric_mean_absolute_percentage_error final : public mean_error {
public:
  symmetric_mean_absolute_percentage_error();

  std::string name() const override {
    return "symmetric_mean_absolute_percentage_error";
  }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

} // namespace troupe
