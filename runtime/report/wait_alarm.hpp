#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/rank_wait.hpp"

namespace troupe {

/// Decides when a wait of ranks for other ranks is worth a warning, and when it
/// has lasted too long. One per report pairing or barrier; asked now and then.
class wait_alarm {
public:
  using duration = std::chrono::milliseconds;
  using time_point = rank_wait::time_point;

  /// How often a wait is warned about. Long enough for a slow batch or
  /// checkpoint, short enough that somebody still looks at the console.
  static constexpr auto warn_interval = std::chrono::seconds{30};

  explicit wait_alarm(std::optional<duration> timeout) : timeout_(timeout) {}

  /// A warning that names the missing ranks once per `warn_interval` of the
  /// same wait, nothing in between, `ec::timeout` from the limit on.
  expected<std::optional<std::string>>
  check(const std::optional<rank_wait>& wait, time_point now);

private:
  std::optional<duration> timeout_;
  std::optional<rank_wait> current_; // the wait that `warnings_` counts for
  std::int64_t warnings_ = 0;
};

} // namespace troupe
