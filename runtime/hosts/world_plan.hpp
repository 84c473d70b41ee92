#pragma once

#include <cstddef>
#include <vector>

#include "troupe/runtime/config/scaling_config.hpp"

namespace troupe::internal {

/// A host that can have ranks of an attempt.
struct world_candidate {
  std::size_t host = 0; ///< Its number among all hosts of the run.
  int slots = 0;        ///< Most ranks; 0: none.
  bool is_last = false; ///< It gets only ranks for which others have no slots.
};

/// How large a world may be.
struct world_range {
  int min = 1;
  int max = 1;
  /// Ranks on each of its hosts, the same on all; 0: any number.
  int per_host = 0;

  bool is_elastic() const noexcept { return min < max; }
};

/// The ranks of each of *count* hosts in the largest world of *range* that
/// *candidates*, in order of host, can have; those left out have none. Empty:
/// even the smallest world needs more slots.
std::vector<host_share>
plan_world(const std::vector<world_candidate>& candidates,
           const world_range& range, std::size_t count);

} // namespace troupe::internal
