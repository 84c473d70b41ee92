#pragma once

#include <cstdint>
#include <optional>

#include "troupe/runtime/checkpoint/checkpoint.hpp"

namespace troupe::internal {

/// What an attempt starts from.
struct attempt_start {
  std::uint64_t attempt = 0;      ///< Its number, durably reserved (N6).
  std::uint64_t first_report = 0; ///< Index of its first report.
  std::optional<reported_checkpoint> resume; ///< Verified.
};

template <class Inspector>
bool inspect(Inspector& f, attempt_start& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("first_report", x.first_report),
                            f.field("resume", x.resume));
}

} // namespace troupe::internal
