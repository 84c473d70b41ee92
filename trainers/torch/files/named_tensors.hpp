#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// Anything that `innermost_module` accepts.
template <class T>
concept model_like = requires(T& x) {
  x.module();
}
|| requires(T& x) {
  x.named_parameters();
}
|| requires(T& x) {
  *x;
};

/// What a model consists of inside of its wrappers: looks through anything with
/// `module()` (a data-parallel model), module holders and smart pointers. The
/// names of the tensors are those of the innermost module.
template <model_like Model>
auto& innermost_module(Model& model) {
  if constexpr (requires { model.module(); }) {
    static_assert(std::is_reference_v<decltype(model.module())>,
                  "module() must return a reference to the wrapped module");
    return innermost_module(model.module());
  } else if constexpr (requires { model.named_parameters(); }) {
    return model;
  } else {
    return innermost_module(*model);
  }
}

/// Parameters and buffers of *model* with *prefix* before their names, as
/// Python's `state_dict` has them: the tensors themselves, not copies. *model*
/// is a module of LibTorch, a holder or shared pointer of one, a TorchScript
/// module, or a wrapper with `module()`.
template <class Model>
  requires model_like<std::remove_reference_t<Model>>
    tensor_map named_tensors(Model&& model, const std::string& prefix = "") {
    auto& module = innermost_module(model);
    tensor_map result;
    auto add = [&](const auto& items) {
      for (const auto& item : items) {
        if constexpr (requires { item.key(); })
          result.insert_or_assign(prefix + item.key(), item.value());
        else
          result.insert_or_assign(prefix + item.name, item.value);
      }
    };
    add(module.named_parameters());
    add(module.named_buffers());
    return result;
  }

} // namespace troupe
