#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "troupe/trainers/torch/data_parallel/distributed_data_parallel.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"

namespace troupe {

namespace internal {

struct model_access;

} // namespace internal

/// A module of any type whose copies on all ranks are trained as one. Use it
/// as the module itself: `model.forward(images)`, `model->eval()`,
/// `model.parameters()`. `model->forward(images)` is the module's own forward,
/// for evaluation without gradients: a backward after it throws.
///
///   auto model = troupe::prepare_model(context, resnet18(1, 10));
///   auto loss = cross_entropy(model.forward(images), labels);
///   loss.backward(); // gradients are the mean over all ranks
///
/// *Module* derives from `torch::nn::Module`, or is `torch::jit::Module`.
template <class Module>
class data_parallel_model {
public:
  /// See `distributed_data_parallel`; *group* may be null.
  data_parallel_model(std::shared_ptr<Module> module,
                      c10::intrusive_ptr<c10d::ProcessGroup> group,
                      data_parallel_options options = {})
    : module_(std::move(module)),
      ddp_(std::make_unique<internal::distributed_data_parallel>(
        internal::model_tensors_source{
          [inner = module_] { return internal::tensors_of(*inner); },
          [inner = module_](auto& out) {
            internal::append_parameters(*inner, out);
          }},
        std::move(group), std::move(options))) {}

  /// The module's own forward with its own arguments; of a TorchScript module
  /// an IValue.
  template <class... Args>
  auto forward(Args&&... args) {
    return ddp_->forward([&] { return call(std::forward<Args>(args)...); });
  }

  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  Module* operator->() const noexcept { return module_.get(); }
  Module& module() const noexcept { return *module_; }
  const std::shared_ptr<Module>& ptr() const noexcept { return module_; }

  /// All parameters, frozen ones too, for an optimizer.
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> result;
    for (auto& x : internal::tensors_of(*module_).parameters)
      result.push_back(std::move(x.tensor));
    return result;
  }

  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }
  bool is_training() const { return module_->is_training(); }

  /// Clears all gradients, also of frozen parameters and those that no
  /// optimizer has.
  void zero_grad() { ddp_->zero_grad(); }

  internal::no_sync_guard no_sync() { return ddp_->no_sync(); }

  /// See `distributed_data_parallel::join`.
  template <class F>
  void join(F&& body, join_options options = {}) {
    ddp_->join(std::forward<F>(body), options);
  }

  void broadcast_buffers() { ddp_->broadcast_buffers(); }

  /// See `distributed_data_parallel::check_replicas`.
  void check_replicas() { ddp_->check_replicas(); }

private:
  friend struct internal::model_access;

  template <class... Args>
  auto call(Args&&... args) {
    if constexpr (requires { module_->forward(std::forward<Args>(args)...); })
      return module_->forward(std::forward<Args>(args)...);
    else
      return module_->forward(
        std::vector<c10::IValue>{std::forward<Args>(args)...});
  }

  std::shared_ptr<Module> module_;
  std::unique_ptr<internal::distributed_data_parallel> ddp_;
};

namespace internal {

/// What trains the module of a `data_parallel_model`.
struct model_access {
  template <class Module>
  static distributed_data_parallel&
  ddp(const data_parallel_model<Module>& x) noexcept {
    return *x.ddp_;
  }
};

template <class T>
std::shared_ptr<T> shared_module(std::shared_ptr<T> module) {
  return module;
}

/// A module holder (`torch::nn::Linear`), or a module that is a handle itself
/// (`torch::jit::Module`).
template <class T>
auto shared_module(T module) {
  if constexpr (requires { module.ptr(); })
    return module.ptr();
  else
    return std::make_shared<T>(std::move(module));
}

/// Trains *module* over *group*, for programs without a trainer: a
/// `shared_ptr` to a module, a module holder, or a `torch::jit::Module`. A
/// collective.
template <class Module>
auto make_ddp(Module module, c10::intrusive_ptr<c10d::ProcessGroup> group,
              data_parallel_options options = {}) {
  auto inner = shared_module(std::move(module));
  using inner_type = typename decltype(inner)::element_type;
  return data_parallel_model<inner_type>{std::move(inner), std::move(group),
                                         std::move(options)};
}

} // namespace internal

/// Moves *module* to this rank's device and trains it over the group of the
/// run. With one rank it adds nothing. Throws `train_error` if the loop was not
/// started by a torch trainer, or if the ranks' models differ.
///
/// As long as the result exists, `report` and `new_checkpoint` of *context*
/// throw if the last backward left gradients that were not averaged: see
/// `distributed_data_parallel::check_backward`.
template <class Module>
auto prepare_model(train_context& context, Module module,
                   data_parallel_options options = {}) {
  auto plane = data_plane(context);
  auto inner = internal::shared_module(std::move(module));
  inner->to(plane->device);
  auto model =
    internal::make_ddp(std::move(inner), plane->group, std::move(options));
  internal::model_access::ddp(model).check_at_reports(context);
  return model;
}

} // namespace troupe
