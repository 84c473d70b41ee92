#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// All that a new rank process is told: whom to ask for the rest.
struct rank_seed {
  std::string socket; ///< Where its worker group is published.
  std::uint64_t attempt = 0;
  int rank = 0;

  std::string to_bytes() const;
  static expected<rank_seed> from_bytes(const std::string& bytes);
};

} // namespace troupe
