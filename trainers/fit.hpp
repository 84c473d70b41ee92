#pragma once

#include "troupe/runtime/run/result.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe {

/// Runs *request* from start to end on the calling thread's time. SIGINT and
/// SIGTERM stop it in good order. Never throws: what went wrong is in the
/// result.
result fit(run_request request);

} // namespace troupe
