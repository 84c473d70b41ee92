#pragma once

#include "troupe/trainers/torch/metrics/regression/mean_error.hpp"

namespace troupe {

/// The mean of log(cosh(p - t)), also where cosh would overflow.
class log_cosh_error final : public mean_error {
public:
  explicit log_cosh_error(std::int64_t num_outputs = 1);

  std::string name() const override { return "log_cosh_error"; }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

} // namespace troupe
