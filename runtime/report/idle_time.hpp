#pragma once

#include <chrono>
#include <optional>

#include "troupe/runtime/process/process_vitals.hpp"
#include "troupe/runtime/report/rank_wait.hpp"

namespace troupe::internal {

/// How long a rank has shown no sign of life, from looks about once a second.
class idle_time {
public:
  using duration = std::chrono::milliseconds;
  using time_point = rank_wait::time_point;

  /// *seen*: its vitals, unset if they are not available; the rank then counts
  /// as alive. Counts at most *most* since the last look. Without *resets*,
  /// activity is not the rank's own.
  void look(const std::optional<process_vitals>& seen, time_point now,
            duration most, bool resets = true);

  duration get() const noexcept { return idle_; }

  /// What was seen last.
  const std::optional<process_vitals>& last() const noexcept { return last_; }

private:
  std::optional<process_vitals> last_;
  time_point last_look_{};
  duration idle_{0};
};

} // namespace troupe::internal
