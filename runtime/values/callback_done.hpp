#pragma once

#include <string>
#include <vector>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/values/run_control.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe {

/// What an event led to in the callbacks that got it. The user's actors fill in
/// only `failures`, for which the config decides what they do, and `orders`;
/// their time is how long the run waited for the answer.
struct callback_done {
  double seconds = 0; ///< Time in the callbacks.
  bool abort = false; ///< Whether the run is to end for `failures`.
  /// Of each callback that failed, in order.
  std::vector<error> failures = {};
  std::vector<callback_time> times = {}; ///< One entry per callback, in order.
  /// Callbacks without which the run continues: they were not called, or did
  /// not return.
  std::vector<std::string> skipped = {};
  std::vector<run_order> orders = {}; ///< What the run is to do, in order.
};

TROUPE_INSPECT(callback_done, seconds, abort, failures, times, skipped, orders)

} // namespace troupe
