#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "troupe/trainers/torch/visit_tensors.hpp"

namespace troupe {

namespace detail {

/// `torch::data::Example`.
template <class T>
concept has_data_and_target = requires(T& x) {
  x.data;
  x.target;
};

/// References to the fields of *x*.
template <class T>
auto fields(T& x) {
  if constexpr (has_members<T>)
    return x.members();
  else if constexpr (has_data_and_target<T>)
    return std::tie(x.data, x.target);
  else
    return std::apply([](auto&... field) { return std::tie(field...); }, x);
}

template <class T>
concept has_fields =
  tuple_of_fields<T> || has_members<T> || has_data_and_target<T>;

} // namespace detail

/// Makes one batch of *samples*: tensors of equal shape are stacked in a new
/// first dimension, numbers become a tensor `[n]` (float32 for float, float64
/// for double, bool for bool, int64 for integers), fields are put together
/// one by one, everything else becomes a vector. A struct with `members()`
/// becomes the same struct, so its fields must be tensors.
template <class T>
auto collate(std::vector<T> samples) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return at::stack(samples);
  } else if constexpr (std::is_arithmetic_v<T>) {
    constexpr auto type = std::is_same_v<T, bool>       ? at::kBool
                          : std::is_same_v<T, float>    ? at::kFloat
                          : std::is_floating_point_v<T> ? at::kDouble
                                                        : at::kLong;
    using wide =
      std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
    return at::tensor(std::vector<wide>(samples.begin(), samples.end()))
      .to(type);
  } else if constexpr (detail::has_fields<T>) {
    auto column = [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      using fields_type = decltype(detail::fields(samples.front()));
      using field =
        std::remove_reference_t<std::tuple_element_t<I, fields_type>>;
      std::vector<field> values;
      values.reserve(samples.size());
      for (auto& sample : samples)
        values.push_back(std::move(std::get<I>(detail::fields(sample))));
      return collate(std::move(values));
    };
    constexpr auto n =
      std::tuple_size_v<decltype(detail::fields(samples.front()))>;
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      if constexpr (detail::has_members<T>) {
        T batch;
        detail::fields(batch) =
          std::tuple{column(std::integral_constant<std::size_t, I>{})...};
        return batch;
      } else if constexpr (n == 2) {
        return std::pair{column(std::integral_constant<std::size_t, I>{})...};
      } else {
        return std::tuple{column(std::integral_constant<std::size_t, I>{})...};
      }
    }
    (std::make_index_sequence<n>{});
  } else {
    return samples;
  }
}

} // namespace troupe
