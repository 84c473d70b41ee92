#pragma once

#include "troupe/trainers/torch/metrics/regression/multioutput.hpp"
#include "troupe/trainers/torch/metrics/regression/target_moments.hpp"

namespace troupe {

/// 1 - variance(t - p) / variance(t), of inputs [samples] or [samples,
/// outputs]: 1 if the error does not vary, 0 if only the target does not.
class explained_variance final : public target_moments {
public:
  explicit explained_variance(multioutput how = multioutput::uniform_average);

  std::string name() const override { return "explained_variance"; }

private:
  at::Tensor result() const override;

  multioutput multioutput_;
};

} // namespace troupe
