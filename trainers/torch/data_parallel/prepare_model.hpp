#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "troupe/trainers/torch/data_parallel/data_parallel_model.hpp"
#include "troupe/trainers/torch/data_plane.hpp"

namespace troupe {

namespace detail {

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

} // namespace detail

/// Trains *module* over *group*, for programs without a trainer: a
/// `shared_ptr` to a module, a module holder, or a `torch::jit::Module`. A
/// collective.
template <class Module>
auto make_ddp(Module module, c10::intrusive_ptr<c10d::ProcessGroup> group,
              data_parallel_options options = {}) {
  auto inner = detail::shared_module(std::move(module));
  using inner_type = typename decltype(inner)::element_type;
  return data_parallel_model<inner_type>{std::move(inner), std::move(group),
                                         std::move(options)};
}

/// Moves *module* to this rank's device and trains it over the group of the
/// run. In a world of one rank it adds nothing. Throws `train_error` if the
/// loop was not started by a torch trainer, or if the ranks' models differ.
///
/// As long as the result lives, `report` and `new_checkpoint` of *context*
/// throw if the last backward left gradients that were not averaged: see
/// `distributed_data_parallel::check_backward`.
template <class Module>
auto prepare_model(train_context& context, Module module,
                   data_parallel_options options = {}) {
  auto plane = data_plane(context);
  auto inner = detail::shared_module(std::move(module));
  inner->to(plane->device);
  auto model = make_ddp(std::move(inner), plane->group, std::move(options));
  model.data_parallel().check_at_reports(context);
  return model;
}

} // namespace troupe
