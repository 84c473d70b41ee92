#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

namespace troupe {

/// While it lives, a module is in evaluation mode and nothing has gradients.
/// Afterwards each of its parts is in the mode in which it was: a user may have
/// frozen some.
class evaluation_mode {
public:
  explicit evaluation_mode(torch::nn::Module& module) {
    for (auto& x : module.modules())
      before_.emplace_back(x, x->is_training());
    module.eval();
  }

  ~evaluation_mode() {
    // A parent comes before its parts and sets theirs too.
    for (auto& [module, training] : before_)
      module->train(training);
  }

  evaluation_mode(const evaluation_mode&) = delete;
  evaluation_mode& operator=(const evaluation_mode&) = delete;

private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> before_;
  c10::NoGradGuard no_grad_;
};

} // namespace troupe
