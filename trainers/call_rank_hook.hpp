#pragma once

#include <functional>
#include <string_view>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Calls the user's hook *name* and turns an exception into an error that names
/// the hook; `ec::stopped` if it left because the run stops.
error call_rank_hook(std::string_view name, const std::function<void()>& call);

} // namespace troupe::internal
