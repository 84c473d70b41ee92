#pragma once

#include <memory>

#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/callbacks/callback_list.hpp"
#include "troupe/runtime/values/run_context.hpp"

namespace troupe {

struct user_callback_args {
  std::shared_ptr<callback_list> callbacks;
};

/// Behavior of the USER CALLBACK actor. Spawn it detached: callbacks may
/// block.
user_callback_actor::behavior_type
callback_runner(user_callback_actor::stateful_pointer<run_context> self,
                user_callback_args args);

} // namespace troupe
