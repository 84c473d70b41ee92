#include "troupe/runtime/run/callback_watchdog.hpp"

#include <algorithm>
#include <utility>

namespace troupe::internal {

void callback_watchdog::asked(time_point now, time_point real) {
  since_ = now;
  next_name_ = now + timeout_;
  checked_ = real;
}

callback_watchdog::verdict callback_watchdog::check(time_point now,
                                                    time_point real) {
  if (!since_)
    return verdict::wait;
  auto passed = real - std::exchange(checked_, real);
  if (stood_still(passed, interval)) {
    auto suspended = std::min(passed, now - *since_);
    *since_ += suspended;
    next_name_ += suspended;
  }
  if (limit_ && now >= *since_ + *limit_)
    return verdict::give_up;
  if (timeout_.count() == 0 || now < next_name_)
    return verdict::wait;
  next_name_ = now + timeout_;
  return verdict::name;
}

callback_watchdog::duration callback_watchdog::waited(time_point now) const {
  return since_ ? std::chrono::duration_cast<duration>(now - *since_)
                : duration{0};
}

std::optional<callback_watchdog::duration>
callback_watchdog::next_check(time_point now) const {
  if (!since_)
    return std::nullopt;
  std::optional<time_point> next;
  if (timeout_.count() > 0)
    next = next_name_;
  if (limit_)
    next = next ? std::min(*next, *since_ + *limit_) : *since_ + *limit_;
  if (!next)
    return std::nullopt;
  return std::clamp(std::chrono::ceil<duration>(*next - now), duration{0},
                    interval);
}

} // namespace troupe::internal
