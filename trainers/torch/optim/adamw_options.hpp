#pragma once

#include <utility>

namespace troupe {

/// Options of `fused_adamw`; names and defaults are those of torch.optim.AdamW.
struct adamw_options {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2; ///< Shrinks the weights, apart from the gradient.
  bool amsgrad = false;
  bool maximize = false;
};

} // namespace troupe
