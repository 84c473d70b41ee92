#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// What a new rank process gets. Its descriptors are the shared segment, the
/// socket through which it asks its worker group for the rest, and the file of
/// its `ranks_ticket`.
struct rank_seed {
  std::uint64_t attempt = 0;
  int rank = 0;
  std::uint64_t token = 0; ///< Of its `ranks_ticket`.

  std::string to_bytes() const;
  static expected<rank_seed> from_bytes(const std::string& bytes);
};

} // namespace troupe
