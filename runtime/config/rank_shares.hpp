#pragma once

#include <vector>

#include "troupe/runtime/config/scaling_config.hpp"

namespace troupe::internal {

/// Deals *ranks* to hosts with *slots*: as evenly as possible, none more than
/// its slots, and the first hosts have more. Returns those of each host, and
/// fewer than *ranks* in all if there are not enough slots.
std::vector<int> deal_ranks(const std::vector<int>& slots, int ranks);

/// Numbers the ranks of *hosts*, one host after the other: sets the
/// `first_rank` of each. Returns how many ranks there are.
template <class Host>
int number_ranks(std::vector<Host>& hosts) noexcept {
  int result = 0;
  for (auto& host : hosts) {
    host.first_rank = result;
    result += host.ranks;
  }
  return result;
}

/// The number of ranks of *shares*.
int ranks_in(const std::vector<host_share>& shares) noexcept;

} // namespace troupe::internal
