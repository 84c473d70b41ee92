#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace troupe {

/// Ranks that wait for other ranks.
struct rank_wait {
  using time_point = std::chrono::steady_clock::time_point;

  std::string what;         ///< What they wait in, "report 3" or "barrier 2".
  std::vector<int> waiting; ///< Ranks that are there, ascending.
  std::vector<int> missing; ///< Ranks that are not, ascending.
  time_point since;         ///< When the first began to wait for them.

  bool operator==(const rank_wait&) const = default;
};

/// "report 3: rank 1 is missing for 30 s, ranks 0, 2 wait".
std::string to_string(const rank_wait& x, rank_wait::time_point now);

/// "rank 1".
std::string rank_name(int rank);

/// "rank 1" or "ranks 0, 2, 5", at most 16 by number and the rest counted.
std::string rank_list(const std::vector<int>& ranks);

} // namespace troupe
