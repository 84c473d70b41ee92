#pragma once

#include "troupe/trainers/torch/metrics/regression/mean_error.hpp"

namespace troupe {

/// The mean of |p - t| / max(|t|, `smallest_divisor`): 1 is 100 %. Where the
/// target is zero an error is huge but finite.
class mean_absolute_percentage_error final : public mean_error {
public:
  mean_absolute_percentage_error();

  std::string name() const override { return "mean_absolute_percentage_error"; }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

} // namespace troupe
