#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/process/process_vitals.hpp"
#include "troupe/runtime/report/idle_time.hpp"
#include "troupe/runtime/report/rank_wait.hpp"

namespace troupe::internal {

/// What a rank that others wait for looks like from outside.
struct rank_look {
  std::string place; ///< Where it is, such as "in its train loop for 12 s".
  /// Its activity; unset: not available.
  std::optional<process_vitals> vitals;
};

/// What to do about ranks that keep others waiting.
struct hang_verdict {
  std::vector<std::string> named;  ///< Waits to report now.
  std::vector<std::string> over;   ///< Named waits that have ended.
  std::vector<int> show_stacks;    ///< Ranks to ask for their stacks.
  std::map<int, std::string> hung; ///< Ranks to end, and why.
};

/// Decides when a rank that others wait for is named, and when it is ended.
/// Called about once a second; uses no process and no clock.
///
/// A wait is named `patience` and three of the missing rank's own usual steps
/// after it began, and then repeatedly at growing intervals. A rank is ended
/// for two reasons only: the user's limit, or because it cannot be alive. The
/// latter takes `limits::idle` without CPU time and I/O, or as a stopped
/// process, while others, or the run's end, wait for it: a rank may compute for
/// an hour while the others wait at a barrier.
class hang_monitor {
public:
  using duration = std::chrono::milliseconds;
  using time_point = rank_wait::time_point;
  using look_function = std::function<rank_look(int rank)>;

  struct limits {
    std::optional<duration> wait; ///< Longest wait for a rank; unset: none.
    std::optional<duration> idle; ///< Unset: no rank is ended for being idle.
  };

  /// Longer than usual batches and checkpoints.
  static constexpr auto patience = std::chrono::seconds{10};

  hang_monitor(int world_size, limits x);

  /// How often to check, so that limits are met closely.
  duration interval() const noexcept;

  /// The loop of *rank* took *seconds* for a step.
  void stepped(int rank, double seconds) noexcept {
    auto& x = ranks_[static_cast<std::size_t>(rank)];
    x.steps[x.steps_seen++ % x.steps.size()] = static_cast<float>(seconds);
  }

  /// The next check comes *time* after the last one by a monotonic clock. If
  /// that is much more than `interval`, the driver was stopped, and no wait is
  /// said to have taken that time.
  void checked_after(duration time) noexcept;

  /// For how long the driver was stopped between *since* and *now*, which is
  /// *since_check* after the last check.
  duration standstill(time_point since, time_point now,
                      duration since_check) const noexcept;

  /// Judges *waits*, all current ones. Calls *look* for ranks that are missing
  /// in one.
  hang_verdict check(const std::vector<rank_wait>& waits,
                     const look_function& look, time_point now);

  /// Whether a wait that was named is still under way.
  bool has_named() const noexcept;

private:
  struct rank_state {
    std::array<float, 15> steps{}; // Seconds, the last ones.
    std::uint64_t steps_seen = 0;
    idle_time idle;
    int dump_looks = 0; // Next checks that may show the work of a stack dump.
  };

  struct known_wait {
    rank_wait wait;
    int warnings = 0;
    duration next_warning{0}; // Since it began, without standstills.
  };

  rank_state& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  bool is_standstill(duration between_checks) const noexcept;
  /// How long a wait since *since* has taken until *now*, when all is checked.
  duration waited(time_point since, time_point now) const noexcept;
  void end_waits(const std::vector<rank_wait>& waits, hang_verdict& result,
                 time_point now);
  known_wait& follow(const rank_wait& wait);
  void look_at(rank_state& rank, const rank_look& look, time_point now);
  void judge(const rank_wait& wait, const std::map<int, rank_look>& looks,
             hang_verdict& result, time_point now);
  duration patience_for(const rank_wait& wait);
  double usual_step(const rank_state& rank) const;
  std::string describe(int rank, const rank_look& look);

  limits limits_;
  struct period {
    time_point begin;
    time_point end;
  };

  duration suspended_{0}; // Before this check.
  std::deque<period> standstills_;
  std::vector<rank_state> ranks_;
  std::vector<known_wait> known_;
};

} // namespace troupe::internal
