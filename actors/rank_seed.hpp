#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// What a new rank process is told. The rest it asks its worker group for,
/// through the second of its descriptors; the first is the shared segment.
struct rank_seed {
  std::uint64_t attempt = 0;
  int rank = 0;

  std::string to_bytes() const;
  static expected<rank_seed> from_bytes(const std::string& bytes);
};

} // namespace troupe
