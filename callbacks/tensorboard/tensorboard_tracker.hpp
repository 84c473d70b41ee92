#pragma once

#include <memory>
#include <utility>

#include "troupe/callbacks/tensorboard/tensorboard_options.hpp"
#include "troupe/callbacks/tensorboard/tensorboard_sink.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

/// TensorBoard's event files, for `run_config::callbacks`.
inline std::shared_ptr<user_callback>
tensorboard_tracker(tensorboard_options options = {},
                    tracker_options tracking = {}) {
  return std::make_shared<tracker>(
    std::make_shared<tensorboard_sink>(std::move(options)), tracking);
}

} // namespace troupe
