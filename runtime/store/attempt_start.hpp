#pragma once

#include <cstdint>
#include <optional>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/each_field.hpp"

namespace troupe::internal {

/// What an attempt starts from.
struct attempt_start {
  std::uint64_t attempt = 0;      ///< Its number, durably reserved (N6).
  std::uint64_t first_report = 0; ///< Index of its first report.
  std::optional<reported_checkpoint> resume; ///< Verified.
};

TROUPE_INSPECT(attempt_start, attempt, first_report, resume)

} // namespace troupe::internal
