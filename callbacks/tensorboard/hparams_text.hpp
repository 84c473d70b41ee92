#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/run/run_status_kind.hpp"

namespace troupe::tensorboard {

using time_point = std::chrono::system_clock::time_point;

// The three records that the page "HParams" is made of. A reader keeps the
// first of each that it finds in a folder.

/// Which params and which of the metrics the page shows.
void append_experiment(std::string& out, time_point time,
                       const std::string& name, const metrics& params,
                       const std::vector<std::string>& metric_names);

/// The run's *params* and when it began.
void append_session_start(std::string& out, time_point time,
                          const std::string& run_name, const metrics& params);

/// How the run ended, and when.
void append_session_end(std::string& out, time_point time,
                        run_status_kind status);

} // namespace troupe::tensorboard
