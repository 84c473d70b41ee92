#include "troupe/runtime/run/rate_meter.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

void rate_meter::add(time_point now, std::uint64_t count) {
  auto slot = slot_of(now);
  if (slot - last_slot_ >= static_cast<std::int64_t>(slots))
    counts_.fill(0);
  else
    for (auto i = last_slot_ + 1; i <= slot; ++i)
      counts_[static_cast<std::size_t>(i) % slots] = 0;
  last_slot_ = slot;
  counts_[static_cast<std::size_t>(slot) % slots] += count;
}

double rate_meter::rate(time_point now) const {
  using seconds = std::chrono::duration<double>;
  auto slot = slot_of(now);
  std::uint64_t events = 0;
  for (auto i = std::max<std::int64_t>(0, slot - std::int64_t{slots} + 1);
       i <= last_slot_; ++i)
    events += counts_[static_cast<std::size_t>(i) % slots];
  // The current slot is only partly over: look back to the start of the oldest.
  auto begin =
    std::max(start_, start_ + slot_length * (slot - std::int64_t{slots} + 1));
  auto span = std::max<seconds>(now - begin, slot_length);
  return static_cast<double>(events) / span.count();
}

} // namespace troupe
