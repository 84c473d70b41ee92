#include "troupe/trainers/torch/metrics/regression/explained_variance.hpp"

#include <ATen/ATen.h>

namespace troupe {

explained_variance::explained_variance(multioutput how) : multioutput_(how) {}

at::Tensor explained_variance::result() const {
  auto variance = [this](const at::Tensor& squares, const at::Tensor& sums) {
    return squares / samples() - (sums / samples()).square();
  };
  auto of_errors = variance(squared_errors(), errors());
  auto of_targets = variance(squared_targets(), targets());
  auto scores = at::where(of_targets == 0, 0, 1 - of_errors / of_targets);
  scores = at::where(of_errors == 0, 1, scores);
  return combined_outputs(scores, of_targets, multioutput_);
}

} // namespace troupe
