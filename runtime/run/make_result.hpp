#pragma once

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/run/result.hpp"
#include "troupe/runtime/run/saved_run.hpp"

namespace troupe {

/// The result of the run in *path* with state *x*, whose rank 0 reported
/// *last_metrics* last.
result make_result(const saved_run& x, const fs::path& path,
                   metrics last_metrics);

} // namespace troupe
