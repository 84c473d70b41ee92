#pragma once

#include <memory>

#include "troupe/callbacks/comet/comet_options.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/callbacks/user_callback.hpp"

namespace troupe {

/// For `run_config::callbacks`: the run is seen in Comet.
std::shared_ptr<user_callback> comet_tracker(comet_options options = {},
                                             tracker_options tracking = {});

} // namespace troupe
