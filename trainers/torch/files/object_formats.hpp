#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <utility>

#include <c10/core/Device.h>

#include "troupe/trainers/torch/files/safetensors.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"
#include "troupe/trainers/train_state.hpp"

// How the objects of LibTorch are kept in files, for `train_state`.

namespace torch::serialize {
class InputArchive;
class OutputArchive;
} // namespace torch::serialize

namespace troupe::internal {

/// Whether `innermost_module` finds a module in a *T*.
template <class T>
constexpr bool holds_module() {
  if constexpr (requires(T & x) { x.module().named_parameters(); })
    return true;
  else if constexpr (requires(T & x) { x.named_parameters(); })
    return true;
  else if constexpr (requires(T & x) { x->named_parameters(); })
    return true;
  else
    return false;
}

/// An object that gives its state as tensors, as optimizers and metrics do.
template <class T>
concept has_tensor_state = requires(T& x, const T& y) {
  { y.state() } -> std::same_as<tensor_map>;
  x.load_state(y.state());
};

/// A metric: its state is that of the samples of one rank.
template <class T>
concept metric_like = requires(T& x, const T& y) {
  { y.updates() } -> std::integral;
  x.reset();
  &T::synchronize_over;
};

template <metric_like T>
inline constexpr bool has_samples<T> = true;

/// An optimizer of LibTorch.
template <class T>
concept archived = requires(T& x, const T& y,
                            torch::serialize::InputArchive& in,
                            torch::serialize::OutputArchive& out) {
  y.save(out);
  x.load(in);
  x.param_groups();
};

/// A module in whatever wraps it: what Python reads as its `state_dict`.
template <class T>
  requires(holds_module<T>())
struct object_format<T> {
  static constexpr auto extension = ".safetensors";

  static void save(const fs::path& path, const T& x) {
    save_safetensors(path, named_tensors(const_cast<T&>(x)));
  }

  static restore_step read(const fs::path& path, T& x) {
    auto saved = load_safetensors(path);
    auto mine = named_tensors(x);
    check_fit(saved, mine);
    return {[saved, mine] { load_into(saved, mine); }, {}};
  }
};

template <class T>
  requires(has_tensor_state<T> && !holds_module<T>())
struct object_format<T> {
  static constexpr auto extension = ".safetensors";

  static void save(const fs::path& path, const T& x) {
    save_safetensors(path, x.state());
  }

  static restore_step read(const fs::path& path, T& x) {
    return {[&x, saved = load_safetensors(path)] { x.load_state(saved); },
            [&x, before = std::as_const(x).state()] { x.load_state(before); }};
  }
};

/// A defined tensor keeps its device and type, and must have the shape.
template <>
struct object_format<at::Tensor> {
  static constexpr auto extension = ".safetensors";

  static void save(const fs::path& path, const at::Tensor& x);
  static restore_step read(const fs::path& path, at::Tensor& x);
};

/// A tensor keeps the device of the one of its name that is replaced.
template <>
struct object_format<tensor_map> {
  static constexpr auto extension = ".safetensors";

  static void save(const fs::path& path, const tensor_map& x) {
    save_safetensors(path, x);
  }
  static restore_step read(const fs::path& path, tensor_map& x);
};

using archive_writer = std::function<void(torch::serialize::OutputArchive&)>;
using archive_reader = std::function<void(torch::serialize::InputArchive&)>;

void save_archive(const fs::path& path, const archive_writer& write);

/// Reads the tensors to *device*; without one, to those they were saved from.
restore_step read_archive_of(const fs::path& path,
                             std::optional<at::Device> device,
                             const archive_writer& write,
                             const archive_reader& read);

/// The device of all parameters of an optimizer; none if there are several.
template <class Groups>
std::optional<at::Device> common_device(const Groups& groups) {
  std::optional<at::Device> result;
  for (auto& group : groups)
    for (const at::Tensor& x : group.params()) {
      if (result && *result != x.device())
        return std::nullopt;
      result = x.device();
    }
  return result;
}

/// An optimizer. Its state is read to the device of its parameters: rank 0
/// saved it on its own.
template <class T>
  requires(archived<T> && !holds_module<T>())
struct object_format<T> {
  static constexpr auto extension = ".pt";

  static void save(const fs::path& path, const T& x) {
    save_archive(path, [&x](auto& out) { x.save(out); });
  }

  static restore_step read(const fs::path& path, T& x) {
    return read_archive_of(
      path, common_device(x.param_groups()), [&x](auto& out) { x.save(out); },
      [&x](auto& in) { x.load(in); });
  }
};

} // namespace troupe::internal
