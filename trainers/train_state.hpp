#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/trainers/packed_value.hpp"
#include "troupe/trainers/train_error.hpp"

namespace troupe {

class train_context;

namespace internal {

/// What was read from a file, and the object that is to get it.
struct restore_step {
  std::function<void()> apply;
  /// Takes `apply` back. Empty: all that can be wrong was found out before, and
  /// the step is among the last.
  std::function<void()> undo;
};

/// An object that gives its state as a value, such as a sampler.
template <class T>
concept has_state = requires(T& x, const T& y) {
  x.load_state(y.state());
};

/// How an object is kept in a file, whose name ends as `extension` says. This
/// one is for all that cereal serializes, and for objects with such a state;
/// `trainers/torch/` adds those of LibTorch.
template <class T>
struct object_format {
  static constexpr auto extension = ".bin";

  static void save(const fs::path& path, const T& x) {
    if constexpr (has_state<T>)
      save_packed(path, pack(x.state()));
    else
      save_packed(path, pack(x));
  }

  static restore_step read(const fs::path& path, T& x) {
    if constexpr (has_state<T>) {
      using state = std::remove_cvref_t<decltype(std::as_const(x).state())>;
      state saved{};
      value_or_throw(unpack(load_packed(path), saved));
      return {[&x, saved] { x.load_state(saved); },
              [&x, before = state(std::as_const(x).state())] {
                x.load_state(before);
              }};
    } else {
      // In place: an object may have members that are not saved.
      return {
        [&x, saved = load_packed(path)] { value_or_throw(unpack(saved, x)); },
        [&x, before = value_or_throw(pack(std::as_const(x)))] {
          value_or_throw(unpack(before, x));
        }};
    }
  }
};

/// Whether a *T* has a state of its rank alone: `updates()` on it, until a
/// `reset()`. `trainers/torch/` says so of metrics.
template <class T>
inline constexpr bool has_samples = false;

/// An object with a name, of any type.
struct saved_object {
  std::string name;
  std::string file; ///< Its name in a checkpoint.
  std::function<void(const fs::path& path)> save;
  std::function<restore_step(const fs::path& path)> read;
  /// Whether it holds what this rank alone has seen, and drops that; empty if
  /// the object is equal on all ranks.
  std::function<bool()> has_own_samples;
  std::function<void()> reset;
};

/// Throws `train_error` for a name that no file can have.
void check_object_name(const std::string& name);

/// Puts into *objects* what the files in *folder* hold: all of them, or, if it
/// throws, none.
void restore(const std::vector<saved_object>& objects, const fs::path& folder);

template <class T>
saved_object named_object(std::string name, T& x) {
  using format = object_format<std::remove_const_t<T>>;
  check_object_name(name);
  saved_object result;
  result.file = name + format::extension;
  result.name = std::move(name);
  result.save = [&x](const fs::path& path) { format::save(path, x); };
  if constexpr (!std::is_const_v<T>)
    result.read = [&x](const fs::path& path) { return format::read(path, x); };
  if constexpr (!std::is_const_v<T> && has_samples<T>) {
    result.has_own_samples = [&x] { return x.updates() > 0; };
    result.reset = [&x] { x.reset(); };
  }
  return result;
}

/// What `staged_checkpoint::save` and `checkpoint::load` call.
template <class T>
struct object_file {
  static void save(const fs::path& folder, const std::string& name,
                   const T& x) {
    auto object = named_object(name, x);
    object.save(folder / object.file);
  }

  static void load(const fs::path& folder, const std::string& name, T& x) {
    restore({named_object(name, x)}, folder);
  }
};

} // namespace internal

/// The objects that a training consists of, by name: all that has to be saved
/// to continue.
///
///   int epoch = 0;
///   troupe::train_state state{
///     {"model", model}, {"optimizer", optimizer}, {"epoch", epoch}};
///   context.resume(state);
///   while (epoch < cfg.epochs) {
///     ...
///     ++epoch;
///     context.report({{"loss", loss}}, state);
///   }
///
/// An object is anything that cereal serializes, or has `state()` and
/// `load_state(x)`: numbers, texts, containers, samplers, loaders, schedules.
/// With `troupe/torch.hpp` also modules and what wraps them, tensors, metrics,
/// and optimizers, Troupe's and LibTorch's. Each is one file in a checkpoint:
/// `<name>.safetensors`, `<name>.pt` for LibTorch's optimizers, `<name>.bin`
/// for the rest. The objects are not copied, and must outlive this.
///
/// The objects are equal on all ranks. A metric has samples of its rank alone:
/// in a loop of several ranks it is saved only after a reset, and with samples
/// that a single rank saved it is loaded by rank 0 alone.
class train_state {
public:
  /// An object and its name, which is that of its file.
  class object {
  public:
    template <class T>
    object(std::string name, T& x)
      : value_(internal::named_object(std::move(name), x)) {
      static_assert(!std::is_const_v<T>,
                    "an object of a train_state is restored: it cannot be "
                    "const");
    }

  private:
    friend class train_state;

    internal::saved_object value_;
  };

  /// Throws `train_error` for a name that is empty, is used twice or cannot be
  /// that of a file.
  train_state(std::initializer_list<object> objects);

  /// Adds one more.
  template <class T>
  void add(std::string name, T& x) {
    add(object{std::move(name), x});
  }

  /// Writes every object into *files*. Throws `train_error` that names the
  /// file, or a metric with samples in a loop of several ranks.
  void save(staged_checkpoint& files) const;

  /// Gives every object what *from* holds of it. Throws `train_error` that
  /// names the file if one is missing, damaged, of another type or does not
  /// fit; then no object has changed.
  void load(const checkpoint& from) const;

private:
  friend class train_context;

  void add(object x);

  /// Throws `train_error` for a metric that several ranks cannot share.
  void check_shared() const;

  std::vector<internal::saved_object> objects_;
};

} // namespace troupe
