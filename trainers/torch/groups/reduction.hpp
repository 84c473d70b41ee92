#pragma once

#include <cstddef>
#include <cstdint>

#include "troupe/trainers/torch/groups/element_type.hpp"

namespace troupe {

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
  void apply(std::byte* out, std::byte* copy, const std::byte* const* sources,
             int ranks, std::size_t count) const noexcept;
};

} // namespace troupe
