#include "troupe/callbacks/tracking/tracker.hpp"

#include <algorithm>

namespace troupe {

using namespace internal;

backoff::milliseconds backoff::next(std::optional<milliseconds> asked) {
  auto doublings = std::min(failures_++, 20);
  auto bound = std::min(limits_.longest.count(),
                        limits_.first.count() * (std::int64_t{1} << doublings));
  std::uniform_int_distribution<std::int64_t> wait{bound / 2, bound};
  milliseconds result{wait(random_)};
  if (asked)
    result = std::max(result, std::min(*asked, limits_.longest_asked));
  return result;
}

} // namespace troupe
