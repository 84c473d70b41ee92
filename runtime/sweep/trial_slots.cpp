#include "troupe/runtime/sweep/trial_slots.hpp"

#include <algorithm>
#include <cassert>

namespace troupe::internal {

trial_slots::trial_slots(int count, const std::vector<int>& cores, claim each)
  : taken_(static_cast<std::size_t>(std::max(count, 0))) {
  auto part = static_cast<std::size_t>(std::max(each.cores, 0));
  auto has_cores = part * taken_.size() <= cores.size();
  auto core = cores.begin();
  auto gpu = 0;
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    slot x{i, {}, {}};
    for (std::size_t n = 0; has_cores && n < part; ++n)
      x.cores.push_back(*core++);
    for (int n = 0; n < each.gpus; ++n)
      x.gpus.push_back(gpu++);
    slots_.push_back(std::move(x));
  }
}

bool trial_slots::has_room() const noexcept {
  return std::ranges::count(taken_, false) > 0;
}

trial_slots::slot trial_slots::take() {
  auto free = std::ranges::find(taken_, false);
  assert(free != taken_.end());
  *free = true;
  return slots_[static_cast<std::size_t>(free - taken_.begin())];
}

void trial_slots::give_back(const slot& x) {
  taken_.at(x.number) = false;
}

} // namespace troupe::internal
