#pragma once

#include <string>

#include "troupe/runtime/run/run_status.hpp"

namespace troupe {

/// State, attempt and number of ranks: "running, attempt 0, 2 ranks".
std::string state_text(const run_status& x);

/// Those of *x* that fit into *columns*, at least one, and how many do not:
/// "acc=0.9 loss=0.3 + 996 more".
std::string metrics_text(const metrics& x, int columns);

/// The last report: "report 12, 3.4/s, 1:05: loss=0.3", with the metrics that
/// fit into *columns*.
std::string report_text(const run_status& x, int columns);

/// All of it with *elapsed_s* seconds; what may be cut off is at the end.
std::string live_text(const run_status& x, double elapsed_s, int columns);

} // namespace troupe
