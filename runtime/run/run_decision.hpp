#pragma once

#include <chrono>
#include <cstdint>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/run/run_state.hpp"

namespace troupe {

/// What the owner of a `run_state_machine` does next.
struct run_action {
  enum class kind : std::uint8_t {
    none,        ///< Nothing.
    decide_size, ///< After `delay`, answer `size_decided` or `size_undecided`.
    start_group, ///< Start `world_size` ranks as `attempt`; answer
                 ///< `group_started` or `group_start_failed`.
    stop_group,  ///< Stop the ranks of `attempt` for `reason` (`ec::none`: they
                 ///< are done); answer `group_stopped` or `group_stop_failed`,
                 ///< at once if there is no such group.
    preempt_group, ///< Ask the ranks of `attempt` to leave their loops for
                   ///< `reason`; answer `grace_over` if they take too long.
    end,           ///< The run is over; `reason` tells why unless it finished.
  };

  kind what = kind::none;
  std::uint64_t attempt = 0;
  int world_size = 0;
  std::chrono::milliseconds delay{0};
  error reason;

  bool operator==(const run_action&) const = default;
};

/// What one event led to. *from* and *to* are equal if the state stayed.
struct run_decision {
  run_state from = run_state::initializing;
  run_state to = run_state::initializing;
  run_action action;

  bool operator==(const run_decision&) const = default;
};

} // namespace troupe
