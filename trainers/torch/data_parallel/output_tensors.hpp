#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace troupe {

/// Calls *f* with each tensor of a TorchScript value and stores what it
/// returns.
void replace_tensors(c10::IValue& value,
                     const std::function<at::Tensor(at::Tensor)>& f);

namespace detail {

struct tensor_collector {
  std::vector<at::Tensor*>& found;
  void operator()(at::Tensor& x) const {
    if (x.defined())
      found.push_back(&x);
  }
};

/// A type that names its tensors itself:
///
///   struct outputs { at::Tensor logits, embedding; };
///   template <class F>
///   void for_each_tensor(outputs& x, F&& f) { f(x.logits); f(x.embedding); }
template <class T>
concept names_its_tensors = requires(T& x, tensor_collector f) {
  for_each_tensor(x, f);
};

template <class T>
concept tuple_like = requires {
  std::tuple_size<T>::value;
};

template <class T>
struct is_optional : std::false_type {};

template <class T>
struct is_optional<std::optional<T>> : std::true_type {};

} // namespace detail

/// Appends the tensors of a forward's output to *found*: a tensor, any nesting
/// of tuples, pairs, optionals, maps and ranges of them, or a type with a
/// `for_each_tensor` of its own. Returns whether *T* is such a type; of any
/// other none is found.
template <class T>
bool find_tensors(T& x, std::vector<at::Tensor*>& found) {
  if constexpr (std::is_const_v<
                  T> || std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return true; // a map's key, a number: nothing to differentiate
  } else if constexpr (std::same_as<T, at::Tensor>) {
    detail::tensor_collector{found}(x);
    return true;
  } else if constexpr (detail::names_its_tensors<T>) {
    for_each_tensor(x, detail::tensor_collector{found});
    return true;
  } else if constexpr (detail::is_optional<T>::value) {
    return !x || find_tensors(*x, found);
  } else if constexpr (detail::tuple_like<T>) {
    return std::apply(
      [&found](auto&... xs) { return (find_tensors(xs, found) & ... & true); },
      x);
  } else if constexpr (std::ranges::range<T>) {
    bool known = true;
    for (auto&& element : x)
      known &= find_tensors(element, found);
    return known;
  } else {
    return false;
  }
}

} // namespace troupe
