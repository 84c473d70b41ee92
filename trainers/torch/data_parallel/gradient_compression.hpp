#pragma once

#include <cstdint>

namespace troupe {

/// How gradients travel. Half precision halves the bytes on the wire; sums are
/// rounded on the way, so weights stay equal on all ranks but differ from those
/// of a run without compression.
enum class gradient_compression : std::uint8_t {
  none,
  fp16, ///< 11 bits of precision; gradients above 65,504 become infinite.
  bf16, ///< 8 bits of precision, the range of fp32.
};

} // namespace troupe
