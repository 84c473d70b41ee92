#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <c10/core/ScalarType.h>

namespace troupe::internal {

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

/// How elements of several ranks become one.
enum class reduction_op : std::uint8_t {
  sum,
  average, ///< Sum divided by the number of ranks; integers truncate. The sum
           ///< of integers is 64 bits wide.
  product,
  min, ///< A NaN of any rank wins, here and for `max`.
  max,
  bit_and,
  bit_or,
  bit_xor,
};

/// An operation on elements of one type.
struct reduction {
  element_type type = element_type::float32;
  reduction_op op = reduction_op::sum;

  /// Whether such a reduction exists: no bits of floating-point numbers, no
  /// average of booleans. Booleans take `sum` and `max` as "or", `product` and
  /// `min` as "and".
  bool defined() const noexcept;

  /// Reduces *count* elements of each of *ranks* sources, in order of rank, to
  /// *out*, which may be one of the sources; copies the result to *copy* unless
  /// it is null. Half-precision elements are reduced as float and rounded once.
  /// An average is over *all* ranks, if some of them were added before.
  void apply(std::byte* out, std::byte* copy, const std::byte* const* sources,
             int ranks, std::size_t count, int all = 0) const noexcept;
};

/// Copies *bytes* that another core reads next. *to* is aligned to 16 bytes.
///
/// Bypasses this core's cache: taking over cache lines from the core that read
/// them last is up to six times slower than writing to memory.
void streaming_copy(std::byte* to, const std::byte* from,
                    std::size_t bytes) noexcept;

} // namespace troupe::internal
