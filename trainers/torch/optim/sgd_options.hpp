#pragma once

namespace troupe {

/// Options of `fused_sgd`; names and defaults are those of torch.optim.SGD.
struct sgd_options {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

} // namespace troupe
