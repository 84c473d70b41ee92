#pragma once

#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::data {

template <typename Data, typename Target>
struct Example;

} // namespace torch::data

namespace troupe::internal {

/// Hides functions at the place of the call: a type's own `for_each_tensor` is
/// found by argument-dependent lookup only.
void for_each_tensor() = delete;

struct tensor_probe {
  void operator()(at::Tensor&) const;
};

/// A type that names its tensors itself:
///
///   struct outputs { at::Tensor logits, embedding; };
///   template <class F>
///   void for_each_tensor(outputs& x, F&& f) { f(x.logits); f(x.embedding); }
template <class T>
concept names_its_tensors = requires(T& x, tensor_probe f) {
  for_each_tensor(x, f);
};

template <class T, class F>
void ask_for_tensors(T& x, F&& f) {
  for_each_tensor(x, f);
}

template <class T>
concept tuple_of_fields = requires {
  std::tuple_size<T>::value;
};

/// A struct of one's own that lists its fields: `auto members() { return
/// std::tie(image, label); }`.
template <class T>
concept has_members = requires(T& x) {
  x.members();
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
inline constexpr bool is_example = false;
template <class Data, class Target>
inline constexpr bool is_example<torch::data::Example<Data, Target>> = true;

template <class T>
concept number_or_enum = std::is_arithmetic_v<T> || std::is_enum_v<T>;

/// Numbers and texts: ranges whose elements are not tensors.
template <class T>
concept range_of_numbers =
  std::ranges::range<T> && std::is_arithmetic_v<std::ranges::range_value_t<T>>;

template <class T>
concept lvalue_type = std::is_lvalue_reference_v<T>;

/// A range that holds its elements.
template <class T>
concept range_of_elements =
  std::ranges::range<T> && lvalue_type<std::ranges::range_reference_t<T>>;

/// Calls *f* with each tensor in *x* that is defined. Returns whether *T* is a
/// type whose tensors are known; in any other it finds none.
///
/// Known are a tensor, any nesting of tuples, pairs, optionals, maps and ranges
/// of them, a `torch::data::Example`, a struct with `members()`, and a type
/// with a `for_each_tensor` of its own beside it. Batches of loaders and
/// outputs of models are both walked by this function.
template <class T, class F>
bool visit_tensors(T& x, F&& f) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (x.defined())
      f(x);
    return true;
  } else if constexpr (std::is_same_v<T, const at::Tensor>) {
    return false; // no other tensor can take its place
  } else if constexpr (number_or_enum<T> || range_of_numbers<T>) {
    return true;
  } else if constexpr (names_its_tensors<T>) {
    ask_for_tensors(x, [&f](at::Tensor& t) {
      if (t.defined())
        f(t);
    });
    return true;
  } else if constexpr (is_optional<std::remove_const_t<T>>) {
    return !x || visit_tensors(*x, f);
  } else if constexpr (tuple_of_fields<T>) {
    return std::apply(
      [&f](auto&... fields) { return (visit_tensors(fields, f) & ... & true); },
      x);
  } else if constexpr (has_members<T>) {
    auto fields = x.members();
    return visit_tensors(fields, f);
  } else if constexpr (is_example<std::remove_const_t<T>>) {
    bool known = visit_tensors(x.data, f);
    if constexpr (requires { x.target; })
      known &= visit_tensors(x.target, f);
    return known;
  } else if constexpr (range_of_elements<T>) {
    bool known = true;
    for (auto& element : x)
      known &= visit_tensors(element, f);
    return known;
  } else {
    return false;
  }
}

/// The tensors in *x* that `visit_tensors` finds.
template <class T>
std::vector<at::Tensor*> tensors_in(T& x) {
  std::vector<at::Tensor*> result;
  visit_tensors(x, [&result](at::Tensor& t) { result.push_back(&t); });
  return result;
}

} // namespace troupe::internal
