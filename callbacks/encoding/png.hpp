#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// A PNG file of *pixels*: rows from the top, pixels from the left, the
/// channels of a pixel side by side (height x width x channels, 8 bits each).
/// Channels: 1 gray, 2 gray with alpha, 3 RGB, 4 RGB with alpha.
///
/// `ec::invalid_argument` if a size is not positive, the number of channels is
/// another one or the number of bytes does not match.
expected<std::string> encode_png(int width, int height, int channels,
                                 std::span<const std::uint8_t> pixels);

} // namespace troupe::internal
