#pragma once

#include <memory>
#include <vector>

#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/config/run_config.hpp"

namespace troupe {

/// The trackers that every run has unless *config* says otherwise:
/// `metrics.csv` and `report.html`.
std::vector<std::shared_ptr<const tracker>>
default_trackers(const run_config& config);

} // namespace troupe
