#pragma once

#include <memory>

#include "troupe/callbacks/csv/csv_options.hpp"
#include "troupe/callbacks/csv/csv_sink.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

/// For `run_config::callbacks`. Every run has one with default options already;
/// one that is given takes its place, and is waited for as long by default.
inline std::shared_ptr<user_callback>
csv_tracker(csv_options options = {}, tracker_options tracking = own_files) {
  return std::make_shared<tracker>(
    std::make_shared<csv_sink>(std::move(options)), tracking);
}

} // namespace troupe
