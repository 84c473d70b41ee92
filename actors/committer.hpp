#pragma once

#include <memory>

#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/run/run_monitor.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal {

struct committer_args {
  std::shared_ptr<run_store> store;
  std::shared_ptr<run_monitor> monitor;
};

/// Behavior of the COMMITTER actor. Spawn it detached: its handlers wait for
/// the disk so that no other actor has to.
committer_actor::behavior_type committer(committer_actor::pointer self,
                                         committer_args args);

} // namespace troupe::internal
