#pragma once

#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/run/run_description.hpp"

namespace troupe {

/// What trackers know about the run in *run_path*.
tracked_run describe_tracked_run(const run_description& x,
                                 const fs::path& run_path);

} // namespace troupe
