#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <c10/core/ScalarType.h>

namespace troupe {

/// What the elements of a reduction are.
enum class element_type : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  int8,
  uint8,
  int16,
  int32,
  int64,
  boolean,
};

/// The element type of a tensor, if such tensors can be reduced.
std::optional<element_type> element_type_of(at::ScalarType type) noexcept;

std::size_t size_of(element_type type) noexcept;

} // namespace troupe
