#include "troupe/trainers/torch/metrics/regression/explained_variance.hpp"

#include <ATen/ATen.h>

namespace troupe {

explained_variance::explained_variance(multioutput how) : multioutput_(how) {}

at::Tensor explained_variance::result() const {
  auto of_errors = error_variation() / samples();
  auto of_targets = target_variation() / samples();
  auto scores = at::where(of_targets == 0, 0, 1 - of_errors / of_targets);
  scores = at::where(of_errors == 0, 1, scores);
  return combined_outputs(scores, of_targets, multioutput_);
}

} // namespace troupe
