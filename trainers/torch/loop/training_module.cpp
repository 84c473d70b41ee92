#include "troupe/trainers/torch/loop/training_module.hpp"

#include "troupe/trainers/torch/loop/epoch_loop.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

std::vector<std::shared_ptr<loop_callback>> loop_module::configure_callbacks() {
  return {};
}

loop_optimizer loop_module::configure_optimizers() {
  return {};
}

void loop_module::log(const std::string& name, const at::Tensor& value,
                      const log_options& options) {
  loop().log(name, value, options);
}

void loop_module::log(const std::string& name, double value,
                      const log_options& options) {
  loop().log(name, value, options);
}

epoch_loop& loop_module::loop() const {
  if (loop_)
    return *loop_;
  throw train_error{{ec::invalid_argument,
                     "module " + name() + " is not being trained by a loop"}};
}

} // namespace troupe
