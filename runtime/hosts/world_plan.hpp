#pragma once

#include <cstddef>
#include <vector>

#include "troupe/runtime/config/scaling_config.hpp"

namespace troupe::internal {

/// A host that can have ranks of an attempt.
struct world_candidate {
  std::size_t seat = 0; ///< Its number among all hosts of the run.
  int slots = 0;        ///< Most ranks; 0: none.
};

/// How large a world may be.
struct world_range {
  int min = 1;
  int max = 1;
  /// Ranks on each of its hosts, the same on all; 0: any number.
  int per_host = 0;

  bool is_elastic() const noexcept { return min < max; }
};

/// Deals *ranks* to hosts with *slots*: one after the other, to each host in
/// turn, none more than its slots. Returns those of each host, and fewer than
/// *ranks* in all if there are not enough slots.
std::vector<int> deal_ranks(const std::vector<int>& slots, int ranks);

/// The ranks of each of *seats* hosts in the largest world of *range* that
/// *hosts*, in order of seat, can have; those left out have none. Empty: even
/// the smallest world needs more slots.
std::vector<host_share> plan_world(const std::vector<world_candidate>& hosts,
                                   const world_range& range, std::size_t seats);

/// The number of ranks of *shares*.
int ranks_in(const std::vector<host_share>& shares) noexcept;

} // namespace troupe::internal
