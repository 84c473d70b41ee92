#pragma once

#include <memory>

#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

struct result_json_options {
  rank_values ranks = rank_values::first;
  non_finite numbers = non_finite::send;
  json_non_finite spelling = json_non_finite::text; ///< Of numbers not finite.
};

/// `result.json` and `params.json`, for `run_config::callbacks`.
std::shared_ptr<user_callback>
result_json_tracker(result_json_options options = {},
                    tracker_options tracking = {});

} // namespace troupe
