#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// Where a run is. The last four are final.
enum class run_state : std::uint8_t {
  initializing,  ///< No attempt was made yet.
  scheduling,    ///< A group is being started.
  running,       ///< Every rank runs its loop.
  restarting,    ///< A rank failed; the group goes, another will come.
  resizing,      ///< The group goes, one of another size will come.
  rescheduling,  ///< A group did not come up; another one will be started.
  shutting_down, ///< The group goes and the run ends.
  finished,
  errored,
  aborted,
  preempted,
};

std::string_view to_string(run_state x) noexcept;

/// Whether *x* is final.
constexpr bool is_terminal(run_state x) noexcept {
  return x >= run_state::finished;
}

} // namespace troupe
