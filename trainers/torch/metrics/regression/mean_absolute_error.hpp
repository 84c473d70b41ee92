#pragma once

#include "troupe/trainers/torch/metrics/regression/mean_error.hpp"

namespace troupe {

/// The mean of |p - t|.
class mean_absolute_error final : public mean_error {
public:
  explicit mean_absolute_error(std::int64_t num_outputs = 1);

  std::string name() const override { return "mean_absolute_error"; }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

} // namespace troupe
