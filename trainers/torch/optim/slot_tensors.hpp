#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// The tensors that Adam and AdamW keep per parameter.
namespace adam_slot {
inline constexpr auto step = "step";
inline constexpr auto exp_avg = "exp_avg";
inline constexpr auto exp_avg_sq = "exp_avg_sq";
inline constexpr auto max_exp_avg_sq = "max_exp_avg_sq";
} // namespace adam_slot

/// The tensor that SGD with momentum keeps per parameter.
namespace sgd_slot {
inline constexpr auto momentum_buffer = "momentum_buffer";
} // namespace sgd_slot

/// The tensor *name* of every slot, in order.
inline std::vector<at::Tensor> column(const std::vector<tensor_map*>& slots,
                                      const char* name) {
  std::vector<at::Tensor> result;
  result.reserve(slots.size());
  for (const auto* slot : slots)
    result.push_back(slot->at(name));
  return result;
}

} // namespace troupe
