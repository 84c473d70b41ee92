#include "troupe/runtime/hosts/world_plan.hpp"

#include "troupe/runtime/config/rank_shares.hpp"

namespace troupe::internal {

std::vector<host_share>
plan_world(const std::vector<world_candidate>& candidates,
           const world_range& range, std::size_t count) {
  std::vector<host_share> result(count, host_share{0, 0});
  auto left = range.max;
  for (auto is_last : {false, true}) {
    std::vector<int> slots;
    auto open = left;
    for (auto& host : candidates) {
      auto mine = host.is_last == is_last ? host.slots : 0;
      if (range.per_host > 0) {
        mine =
          mine >= range.per_host && open >= range.per_host ? range.per_host : 0;
        open -= mine;
      }
      slots.push_back(mine);
    }
    auto ranks = deal_ranks(slots, left);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      result[candidates[i].host].ranks += ranks[i];
      left -= ranks[i];
    }
  }
  if (number_ranks(result) < range.min)
    return {};
  return result;
}

} // namespace troupe::internal
