#pragma once

#include <memory>

#include "troupe/callbacks/prometheus/prometheus_options.hpp"
#include "troupe/callbacks/tracking/tracker_options.hpp"
#include "troupe/callbacks/user_callback.hpp"

namespace troupe {

/// For `run_config::callbacks`: Prometheus can watch the run.
std::shared_ptr<user_callback>
prometheus_tracker(prometheus_options options = {},
                   tracker_options tracking = {});

} // namespace troupe
