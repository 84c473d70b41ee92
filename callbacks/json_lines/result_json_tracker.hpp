#pragma once

#include <memory>

#include "troupe/callbacks/json_lines/result_json_options.hpp"
#include "troupe/callbacks/json_lines/result_json_sink.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

/// `result.json` and `params.json`, for `run_config::callbacks`.
inline std::shared_ptr<user_callback>
result_json_tracker(result_json_options options = {},
                    tracker_options tracking = {}) {
  return std::make_shared<tracker>(std::make_shared<result_json_sink>(options),
                                   tracking);
}

} // namespace troupe
