#pragma once

#include "troupe/runtime/store/result.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe {

/// Runs *request* from start to end; blocks the calling thread. SIGINT stops it
/// in order; `run_config::preempt_signals` let ranks save a last checkpoint
/// first. Never throws: the result has the error.
result fit(const internal::run_request& request) noexcept;

} // namespace troupe
