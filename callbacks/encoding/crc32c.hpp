#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// CRC-32C (Castagnoli, RFC 3720) of *bytes*.
std::uint32_t crc32c(std::string_view bytes) noexcept;

/// CRC-32C as record files of TensorFlow's form hold it: rotated and shifted,
/// so that a record may itself contain checksums.
constexpr std::uint32_t masked_crc(std::uint32_t crc) noexcept {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

} // namespace troupe
