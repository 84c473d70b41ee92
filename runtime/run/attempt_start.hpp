#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/runtime/checkpoint/reported_checkpoint.hpp"

namespace troupe {

/// What an attempt starts from.
struct attempt_start {
  std::uint64_t attempt = 0;      ///< Its number, durably reserved (N6).
  std::uint64_t first_report = 0; ///< Index of its first report.
  std::optional<reported_checkpoint> resume; ///< Verified.
};

} // namespace troupe
