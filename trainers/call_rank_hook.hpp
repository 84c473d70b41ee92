#pragma once

#include <sys/types.h>

#include <functional>
#include <string_view>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Calls the user's hook *name* and turns an exception into an error that names
/// the hook; `ec::stopped` if it left because the run stops.
error call_rank_hook(std::string_view name, const std::function<void()>& call);

/// Ends this process if it is not *rank_process* but one that user code forked:
/// what left that code, *failure* if it threw, is not the rank's. Flushes
/// stdio; exits with 0 or, after a failure, which it prints, with 1.
void leave_if_forked(pid_t rank_process, const error& failure);

} // namespace troupe::internal
