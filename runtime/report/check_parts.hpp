#pragma once

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/report_batch.hpp"

namespace troupe {

/// Refuses parts that cannot become one checkpoint: names that differ between
/// ranks, and a file that two ranks add. The error names ranks and names.
expected<void> check_parts(const report_batch& x);

} // namespace troupe
