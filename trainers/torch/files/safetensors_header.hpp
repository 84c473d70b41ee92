#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// The JSON header of a safetensors file. Knows no tensor.
struct safetensors_header {
  /// Where one tensor lies.
  struct entry {
    std::string name;
    std::string dtype; ///< As the format spells it: "F32", "BF16", ...
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0; ///< First byte, from the start of the data.
    std::uint64_t end = 0;   ///< One past the last byte.

    bool operator==(const entry&) const = default;
  };

  std::vector<entry> entries; ///< In order of their place.
  std::map<std::string, std::string> metadata;

  /// Bytes of one element of *dtype*; 0 for one that the format lacks.
  static std::uint64_t element_size(const std::string& dtype) noexcept;

  /// The first bytes of a file: length, JSON and padding to eight bytes.
  std::string encode() const;

  /// Reads the header of the whole file *file*. Every length, offset and shape
  /// is checked against the file before it is used: the tensors cover the data
  /// without a gap, overlap or remainder. The error has no path in it.
  static expected<safetensors_header> decode(std::span<const std::byte> file);

  /// Where the data begins in *file*, whose header was decoded.
  static std::uint64_t data_offset(std::span<const std::byte> file) noexcept;
};

} // namespace troupe::internal
