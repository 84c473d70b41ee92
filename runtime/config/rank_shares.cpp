#include "troupe/runtime/config/rank_shares.hpp"

#include <algorithm>

namespace troupe::internal {

// Each round gives every host that has room the same number of ranks; the last
// one gives one rank to each until none is left.
std::vector<int> deal_ranks(const std::vector<int>& slots, int ranks) {
  std::vector<int> result(slots.size());
  for (;;) {
    int open = 0;
    for (std::size_t i = 0; i < slots.size(); ++i)
      open += result[i] < slots[i] ? 1 : 0;
    if (open == 0 || ranks <= 0)
      return result;
    auto each = std::max(ranks / open, 1);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      auto more = std::clamp(slots[i] - result[i], 0, std::min(each, ranks));
      result[i] += more;
      ranks -= more;
    }
  }
}

int ranks_in(const std::vector<host_share>& shares) noexcept {
  return shares.empty() ? 0 : shares.back().first_rank + shares.back().ranks;
}

} // namespace troupe::internal
