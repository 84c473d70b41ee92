#pragma once

#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/config/run_config.hpp"

namespace troupe::internal {

/// The trackers that every run has unless *config* turns them off:
/// `metrics.csv` and `report.html`.
tracker_list default_trackers(const run_config& config);

/// The trackers of *config*, then the default ones that they do not replace.
tracker_list trackers_of(const run_config& config);

} // namespace troupe::internal
