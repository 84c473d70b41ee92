#pragma once

#include <functional>

#include "troupe/runtime/run/loop_control.hpp"
#include "troupe/runtime/run/result.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe {

/// Runs the loop of *request* inline on the calling thread as rank 0 of 1: no
/// actor, no process, and all else like any run: storage, callbacks, restarts.
/// *control* ends it at its next report, or has it leave after one. Calls
/// *outcome_is_fixed* before it stores the end and tells callbacks of it, and
/// waits for trackers until *hurried* says that there is no time.
result run_inline(const run_request& request, loop_control& control,
                  const std::function<void()>& outcome_is_fixed,
                  const std::function<bool()>& hurried);

} // namespace troupe
