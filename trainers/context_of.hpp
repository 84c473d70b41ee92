#pragma once

#include "troupe/runtime/store/run_store.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe::internal {

/// The context for callbacks of the run of *request* (resolved) in *store*.
run_context context_of(const run_request& request, const run_store& store);

} // namespace troupe::internal
