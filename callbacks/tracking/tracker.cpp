#include "troupe/callbacks/tracking/tracker.hpp"

#include "troupe/runtime/timing.hpp"

#include <algorithm>

namespace troupe {

using namespace internal;

backoff::milliseconds backoff::next(std::optional<milliseconds> asked) {
  auto bound = retry_delay{limits_.first, limits_.longest}.after(++failures_);
  auto random = std::uniform_real_distribution<double>{}(random_);
  auto result = with_jitter(bound, random);
  if (asked)
    result = std::max(result, std::min(*asked, limits_.longest_asked));
  return result;
}

} // namespace troupe
