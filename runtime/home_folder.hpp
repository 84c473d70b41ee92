#pragma once

#include <optional>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// HOME or, if it is unset as under cron, the user's entry; nothing without
/// either.
std::optional<fs::path> home_folder();

} // namespace troupe::internal
