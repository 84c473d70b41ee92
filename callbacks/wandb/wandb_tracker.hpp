#pragma once

#include <memory>

#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/callbacks/user_callback.hpp"
#include "troupe/callbacks/wandb/wandb_options.hpp"

namespace troupe {

/// For `run_config::callbacks`: the run is seen in Weights & Biases.
std::shared_ptr<user_callback> wandb_tracker(wandb_options options = {},
                                             tracker_options tracking = {});

} // namespace troupe
