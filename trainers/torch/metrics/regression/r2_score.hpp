#pragma once

#include "troupe/trainers/torch/metrics/regression/multioutput.hpp"
#include "troupe/trainers/torch/metrics/regression/target_moments.hpp"

namespace troupe {

struct r2_score_options {
  /// Number of independent regressors that the score is adjusted for; 0: none.
  std::int64_t adjusted = 0;
  troupe::multioutput multioutput = troupe::multioutput::uniform_average;
};

/// The coefficient of determination, 1 - (sum of (p - t)^2) / (sum of
/// (t - mean t)^2), of inputs [samples] or [samples, outputs].
///
/// Sums below 1e-4 count as zero, as in TorchMetrics: without error the score
/// is 1, without variance 0. Fewer than two samples over all ranks are an error
/// on all ranks.
class r2_score final : public target_moments {
public:
  using options = r2_score_options;

  explicit r2_score(options x = {});

  std::string name() const override { return "r2_score"; }

private:
  at::Tensor result() const override;
  at::Tensor adjusted(const at::Tensor& plain, std::int64_t samples) const;

  options options_;
};

} // namespace troupe
