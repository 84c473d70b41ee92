#pragma once

#include <string>
#include <vector>

namespace troupe::internal {

/// "rank 1".
std::string rank_name(int rank);

/// "rank 1" or "ranks 0, 2, 5", at most 16 by number and the rest counted.
std::string rank_list(const std::vector<int>& ranks);

} // namespace troupe::internal
