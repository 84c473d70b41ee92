#pragma once

#include <string>
#include <vector>

namespace troupe {

/// What a rank process does, from its seed in *payload* to its exit code. 0:
/// the worker group knows how the loop ended.
int rank_process(std::string payload, std::vector<int> descriptors);

} // namespace troupe
