#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace troupe {

/// The time that one callback took.
struct callback_time {
  std::string name;
  double seconds = 0;

  bool operator==(const callback_time&) const = default;
};

/// Adds a round to the *totals* of the callbacks of a run. Both have one entry
/// per callback, in order; *totals* is empty before the first round.
inline void add_times(std::vector<callback_time>& totals,
                      const std::vector<callback_time>& round) {
  if (totals.empty()) {
    totals = round;
    return;
  }
  auto n = std::min(totals.size(), round.size());
  for (std::size_t i = 0; i < n; ++i)
    totals[i].seconds += round[i].seconds;
}

template <class Inspector>
bool inspect(Inspector& f, callback_time& x) {
  return f.object(x).fields(f.field("name", x.name),
                            f.field("seconds", x.seconds));
}

} // namespace troupe
