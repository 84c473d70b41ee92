#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

struct agent_pulse_args {
  worker_group_actor group; ///< In the driver's process.
  std::uint32_t node_rank = 0;
  std::uint64_t incarnation = 0;
  std::chrono::milliseconds interval{1000};
  /// The group says that another agent has the place of this one.
  std::function<void(const error&)> refused;
};

/// The PULSE of another host's agent.
using agent_pulse_actor = caf::typed_actor<
  // Itself: another tick is due.
  caf::result<void>(caf::tick_atom)>;

/// Sends a `host_tick` now and an interval after each answer. Waits for an
/// answer without a limit: whether the driver can be reached is known from the
/// connection, and a driver that a signal has stopped must not lose its run.
agent_pulse_actor::behavior_type agent_pulse(agent_pulse_actor::pointer self,
                                             agent_pulse_args args);

} // namespace troupe::internal
