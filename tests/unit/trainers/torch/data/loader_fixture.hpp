#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tests/support/memory_link.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal::test {

/// Of a rank without a control plane.
inline train_context make_context(int rank = 0, int world_size = 1) {
  return {
    {.rank = rank, .world_size = world_size}, make_memory_link(), std::nullopt};
}

inline std::vector<std::int64_t> to_vector(const at::Tensor& x) {
  auto flat = x.contiguous();
  return {flat.const_data_ptr<std::int64_t>(),
          flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

} // namespace troupe::internal::test
