#pragma once

#include <functional>
#include <vector>

#include "troupe/actors/group_core.hpp"
#include "troupe/actors/group_ending.hpp"

namespace troupe::internal {

/// How a worker group watches the ranks of its attempt: tells the driver which
/// wait for which, and ends those that hang. `attempt_monitor` decides.
class group_waits {
public:
  group_waits(group_core& group, group_ending& ending)
    : group_(group), ending_(ending) {}

  /// Looks at the ranks at the monitor's interval for as long as they run.
  void watch_ranks();

  /// Looks at them at the moment at which the earliest wait is over its limit.
  void watch_limit();

private:
  /// Looks at the ranks, judges their waits, and then calls *next* unless they
  /// are to end.
  void check(std::function<void()> next);
  void judge();
  /// Asks *ranks* for their stacks, then calls *f* with those that write them.
  void show_stacks_of(const std::vector<int>& ranks,
                      std::function<void(const std::vector<int>&)> f);
  void act_on(const hang_verdict& verdict, const std::vector<int>& shown);

  group_core& group_;
  group_ending& ending_;
};

} // namespace troupe::internal
