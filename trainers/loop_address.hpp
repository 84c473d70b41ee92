#pragma once

#include "troupe/actors/protocol/messages.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/trainers/train_loop.hpp"

namespace troupe::internal {

/// Where other processes of this program find *loop* and its hooks;
/// `ec::invalid_config` for a closure, and for what is not a function of the
/// program or of one of its libraries.
expected<loop_spec> locate_loop(const train_loop& loop);

/// The loop at *spec* with its hooks in this process; `ec::invalid_config` as
/// from `resolve`.
expected<train_loop> resolve_loop(const loop_spec& spec);

} // namespace troupe::internal
