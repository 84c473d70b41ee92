#pragma once

#include <cstdint>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// The bytes of a gzip file in IDX format: a magic number, one size per
/// dimension, then unsigned bytes.
struct idx_file {
  std::vector<std::uint32_t> sizes; ///< One per dimension.
  std::vector<std::uint8_t> data;   ///< As many as the product of the sizes.

  /// Reads *path*, which must hold *dimensions* dimensions and at most
  /// *max_items* items of at most *max_item_bytes* bytes each.
  static expected<idx_file> read(const fs::path& path, int dimensions,
                                 std::uint32_t max_items,
                                 std::uint64_t max_item_bytes);
};

} // namespace troupe
