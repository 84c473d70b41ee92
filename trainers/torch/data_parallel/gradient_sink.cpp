#include "troupe/trainers/torch/data_parallel/gradient_sink.hpp"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace troupe::internal {

namespace {

// A custom node instead of an `autograd::Function`, which does not see tensors
// in a vector. One sink per output would not visit the graph behind an unused
// output.
class sink_node final : public torch::autograd::Node {
public:
  explicit sink_node(std::shared_ptr<gradient_sink_state> state)
    : state_(std::move(state)) {}

  torch::autograd::variable_list
  apply(torch::autograd::variable_list&& gradients) override {
    if (state_->static_graph && !state_->learned) {
      state_->delay_queued = true;
      torch::autograd::Engine::get_default_engine().queue_callback(
        [state = state_] { average_first(*state); });
    }
    return std::move(gradients);
  }

  std::string name() const override { return "gradient_sink"; }

private:
  /// The end of a backward. There may be one for each of several forwards.
  static void average_first(gradient_sink_state& state) {
    if (state.learned)
      return;
    if (state.backward == backward_state::none
        || state.backward == backward_state::cleared) {
      state.delay_queued = false;
      return;
    }
    if (auto reducer = state.reducer.lock()) {
      reducer->delay_all_reduce();
      state.learned = true;
    }
  }

  std::shared_ptr<gradient_sink_state> state_;
};

/// A node held the way this LibTorch holds them: 2.15 counts inside the node.
template <class Pointer>
Pointer make_node(std::shared_ptr<gradient_sink_state> state) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<sink_node>(std::move(state));
  else
    return c10::make_intrusive<sink_node>(std::move(state));
}

using callback = std::function<void()>;

struct arrival_hook final : torch::autograd::PostAccumulateGradHook {
  arrival_hook(std::weak_ptr<callback> f, const void* owner)
    : f(std::move(f)), owner(owner) {}

  void operator()(const at::Tensor&) override {
    if (auto x = f.lock())
      (*x)();
  }

  std::weak_ptr<callback> f;
  const void* owner;
  std::vector<std::weak_ptr<callback>> others; // of other owners
};

} // namespace

void pass_through_sink(const std::vector<at::Tensor*>& outputs,
                       const std::shared_ptr<gradient_sink_state>& state) {
  std::vector<at::Tensor> inputs;
  for (auto output : outputs)
    if (output->grad_fn())
      inputs.push_back(*output);
  if (inputs.empty())
    return;
  using node_pointer = std::remove_cvref_t<decltype(inputs[0].grad_fn())>;
  auto node = make_node<node_pointer>(state);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (auto output : outputs)
    if (output->grad_fn()) {
      *output = output->detach();
      torch::autograd::set_history(*output, node);
    }
}

std::shared_ptr<void> after_each_gradient(const at::Tensor& parameter,
                                          const void* owner, callback f) {
  namespace impl = torch::autograd::impl;
  auto& taken = impl::post_acc_grad_hooks(parameter);
  auto* known = dynamic_cast<arrival_hook*>(taken.get());
  if (taken && !known)
    return nullptr;
  auto result = std::make_shared<callback>(std::move(f));
  auto hook = std::make_unique<arrival_hook>(result, owner);
  if (known) {
    hook->others = std::move(known->others);
    if (known->owner && known->owner != owner)
      hook->others.push_back(known->f);
    std::erase_if(hook->others, [](auto& x) { return x.expired(); });
  }
  impl::set_post_acc_grad_hooks(parameter, std::move(hook));
  return result;
}

bool has_other_owner(const at::Tensor& parameter, const void* owner) {
  auto& taken = torch::autograd::impl::post_acc_grad_hooks(parameter);
  auto* known = dynamic_cast<arrival_hook*>(taken.get());
  auto lives = [](auto& x) { return !x.expired(); };
  return known
         && (std::ranges::any_of(known->others, lives)
             || (known->owner && known->owner != owner && lives(known->f)));
}

} // namespace troupe::internal
