#pragma once

#include <memory>

#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/run/loop_control.hpp"

namespace troupe::internal {

struct trainer_args {
  std::uint64_t attempt = 0;
  int rank = 0;
  host_agent_actor agent;
  std::shared_ptr<loop_control> control; ///< Shared with the loop's thread.
};

/// Behavior of the TRAINER actor: ends the rank's loop when asked to, or when
/// the agent of its host has ended.
trainer_actor::behavior_type trainer(trainer_actor::pointer self,
                                     trainer_args args);

} // namespace troupe::internal
