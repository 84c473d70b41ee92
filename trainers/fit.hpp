#pragma once

#include "troupe/runtime/store/result.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe {

/// Runs *request* from start to end on the calling thread's time. SIGINT stops
/// it in good order; `run_config::preempt_signals` let ranks take a last
/// checkpoint first. Never throws: what went wrong is in the result.
result fit(const run_request& request) noexcept;

} // namespace troupe
