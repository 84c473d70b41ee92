#pragma once

#include <string>
#include <vector>

namespace troupe::internal {

/// The main function of a rank process with the `rank_bootstrap` in *payload*;
/// returns its exit code. 0: the worker group knows how the loop ended.
int rank_process(std::string payload, std::vector<int> descriptors);

} // namespace troupe::internal
