#include "troupe/runtime/hosts/world_plan.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::internal {

std::vector<int> deal_ranks(const std::vector<int>& slots, int ranks) {
  std::vector<int> result(slots.size());
  for (auto before = ranks + 1; ranks > 0 && ranks < before;) {
    before = ranks;
    for (std::size_t i = 0; i < slots.size() && ranks > 0; ++i)
      if (result[i] < slots[i]) {
        ++result[i];
        --ranks;
      }
  }
  return result;
}

std::vector<host_share> plan_world(const std::vector<world_candidate>& hosts,
                                   const world_range& range,
                                   std::size_t seats) {
  std::vector<int> slots;
  auto left = range.max;
  for (auto& host : hosts) {
    auto mine = host.slots;
    if (range.per_host > 0) {
      mine =
        mine >= range.per_host && left >= range.per_host ? range.per_host : 0;
      left -= mine;
    }
    slots.push_back(mine);
  }
  auto ranks = deal_ranks(slots, range.max);
  if (std::accumulate(ranks.begin(), ranks.end(), 0) < range.min)
    return {};
  std::vector<host_share> result(seats, host_share{0, 0});
  for (std::size_t i = 0; i < hosts.size(); ++i)
    result[hosts[i].seat].ranks = ranks[i];
  for (std::size_t i = 1; i < seats; ++i)
    result[i].first_rank = result[i - 1].first_rank + result[i - 1].ranks;
  return result;
}

int ranks_in(const std::vector<host_share>& shares) noexcept {
  return shares.empty() ? 0 : shares.back().first_rank + shares.back().ranks;
}

} // namespace troupe::internal
