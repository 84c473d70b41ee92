#pragma once

#include <ATen/Functions.h>

#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe::internal::test {

/// The data types that both file formats and old Pythons know.
inline constexpr at::ScalarType common_types[]{
  at::kBool, at::kByte,     at::kChar, at::kShort, at::kInt,
  at::kLong, at::kBFloat16, at::kHalf, at::kFloat, at::kDouble};

/// Tensors of all common types, shapes and layouts. Element i of "type_<T>" is
/// i % 2.
inline tensor_map tensor_examples() {
  tensor_map result;
  for (auto type : common_types)
    result[std::string{"type_"} + c10::toString(type)] =
      at::arange(6).remainder(2).view({2, 3}).to(type);
  auto base = at::arange(12, at::kFloat).view({3, 4});
  result["scalar"] = at::scalar_tensor(3.5);
  result["empty"] = at::empty({0, 4});
  result["transposed"] = base.t();
  result["slice"] = base.narrow(1, 1, 2);
  result["channels_last"] = at::arange(24, at::kFloat)
                              .view({1, 2, 3, 4})
                              .contiguous(at::MemoryFormat::ChannelsLast);
  result["shared_a"] = base;
  result["shared_b"] = base;
  result["expanded"] = at::ones({1}).expand({5});
  result["parameter"] = at::full({2}, 0.25).requires_grad_();
  result["name with \"quotes\" and \u00fc"] = at::ones({1});
  return result;
}

} // namespace troupe::internal::test
