#include "troupe/trainers/torch/data_parallel/gradient_arrivals.hpp"

#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace troupe::internal {

namespace {

using callback = std::function<void()>;

struct arrival_hook final : torch::autograd::PostAccumulateGradHook {
  explicit arrival_hook(std::weak_ptr<callback> f) : f(std::move(f)) {}

  void operator()(const at::Tensor&) override {
    if (auto x = f.lock())
      (*x)();
  }

  std::weak_ptr<callback> f;
};

} // namespace

std::shared_ptr<void> after_each_gradient(const at::Tensor& parameter,
                                          callback f) {
  namespace impl = torch::autograd::impl;
  auto& taken = impl::post_acc_grad_hooks(parameter);
  if (taken && !dynamic_cast<arrival_hook*>(taken.get()))
    return nullptr;
  auto result = std::make_shared<callback>(std::move(f));
  impl::set_post_acc_grad_hooks(parameter,
                                std::make_unique<arrival_hook>(result));
  return result;
}

} // namespace troupe::internal
