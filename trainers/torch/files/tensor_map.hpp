#pragma once

#include <map>
#include <string>
#include <type_traits>

#include <ATen/core/Tensor.h>

namespace troupe {

/// Tensors by name.
using tensor_map = std::map<std::string, at::Tensor>;

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

namespace internal {

template <class T>
concept model_reference = model_like<std::remove_reference_t<T>>;

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

} // namespace internal

/// Parameters and buffers of *model* with *prefix* before their names, as
/// Python's `state_dict` has them: the tensors themselves, not copies. *model*
/// is a module of LibTorch, a holder or shared pointer of one, a TorchScript
/// module, or a wrapper with `module()`.
template <internal::model_reference Model>
tensor_map named_tensors(Model&& model, const std::string& prefix = "") {
  auto& module = internal::innermost_module(model);
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

/// How saved tensors are put into a model.
struct load_options {
  /// Names that are missing in the file or unknown to the model are errors.
  bool strict = true;
  /// Only names that begin with it count, and the model's names are without
  /// it.
  std::string prefix;
};

namespace internal {

/// Throws `train_error` that lists all missing, unexpected and differently
/// shaped names, unless *saved* can be copied into *target*.
void check_fit(const tensor_map& saved, const tensor_map& target,
               const load_options& options = {});

/// Copies *saved* into the tensors of *target*; data types are converted.
/// Throws as `check_fit` does, and then nothing was copied.
void load_into(const tensor_map& saved, const tensor_map& target,
               const load_options& options = {});

} // namespace internal

/// Copies *saved* into the parameters and buffers of *model*.
template <internal::model_reference Model>
void load_tensors(const tensor_map& saved, Model&& model,
                  const load_options& options = {}) {
  internal::load_into(saved, named_tensors(model), options);
}

} // namespace troupe
