#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/group_hosts.hpp"
#include "troupe/actors/group_store.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/worker_group_args.hpp"
#include "troupe/runtime/report/attempt_monitor.hpp"
#include "troupe/runtime/report/rank_meetings.hpp"
#include "troupe/runtime/run/attempt_slot.hpp"
#include "troupe/runtime/run/attempt_tracker.hpp"
#include "troupe/runtime/run/cause_search.hpp"
#include "troupe/runtime/run/leave_plan.hpp"
#include "troupe/runtime/run/loss_excuses.hpp"

namespace troupe::internal {

/// What a worker group knows of the attempt under way.
struct group_attempt : numbered_attempt {
  using time_point = std::chrono::steady_clock::time_point;

  /// One entry of *have_gpus* per rank.
  group_attempt(worker_group_actor::pointer self, const start_attempt& x,
                const group_plan& plan, std::vector<bool> have_gpus);

  int world_size() const noexcept { return tracker.world_size(); }

  std::uint64_t first_report;
  std::optional<checkpoint> resume;
  attempt_tracker tracker;
  rank_meetings meetings;
  group_store store;
  attempt_monitor monitor;
  leave_plan leaves;
  loss_excuses excuses;
  cause_search causes;
  std::map<int, time_point> exits; ///< Of ranks' processes.
  bool started = false;
  bool limit_timer = false; ///< A timer for `report_timeout` is set.
  time_point begun;         ///< When its hosts were asked to start ranks.
  /// When its ranks were to end: at once if one was over a limit or broke a
  /// rule.
  std::optional<time_point> end_ordered;
};

/// What the parts of a worker group share. Its clock is that of all deadlines.
struct group_core {
  group_core() = default;
  group_core(const group_core&) = delete;
  group_core& operator=(const group_core&) = delete;

  std::chrono::steady_clock::time_point now() const {
    return self->clock().now();
  }
  std::int64_t now_ms() const {
    using std::chrono::milliseconds;
    return std::chrono::duration_cast<milliseconds>(now().time_since_epoch())
      .count();
  }

  template <class Message>
  void tell_driver(Message x) {
    send(self, driver, std::move(x));
  }

  /// Tells the driver *text* about the attempt; see `attempt_warning`.
  void warn(std::string text, bool waits = false);

  /// Calls *f* after *limit* if the attempt is still this one. If the driver
  /// stood still meanwhile, ranks have *limit* once more (*again*).
  void after(std::chrono::milliseconds limit, std::function<void()> f,
             bool again = true);

  /// Asks the hosts with ranks for snapshots of them, with the vitals of
  /// *examined*. Once they have answered, or have not for a while, calls *f* if
  /// the attempt is still this one.
  void look(const std::vector<int>& examined, std::function<void()> f);

  worker_group_actor::pointer self = nullptr;
  worker_group_args args;
  std::optional<group_hosts> hosts; ///< Set before any message comes.
  driver_actor driver;              ///< Of the last attempt.
  attempt_slot<group_attempt> attempt;
  bool has_come_up = false; ///< An attempt: the program can start ranks.
};

} // namespace troupe::internal
