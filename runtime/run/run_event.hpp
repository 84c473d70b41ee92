#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <variant>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/run/rank_failure.hpp"

namespace troupe {

/// The facts that a `run_state_machine` decides on. Those about a group name
/// its attempt: one of another attempt is refused.
namespace run_events {

/// How many ranks the group is to have now. In `running` this resizes, even to
/// the size it has.
struct size_decided {
  int world_size = 1;
};

/// No group can be had now, or none other is wanted.
struct size_undecided {};

/// Every rank runs its loop.
struct group_started {
  std::uint64_t attempt = 0;
};

/// The group did not come up; none of its processes is left.
struct group_start_failed {
  std::uint64_t attempt = 0;
  error reason;
};

/// The loop of every rank returned.
struct ranks_finished {
  std::uint64_t attempt = 0;
  bool preempted = false; ///< After they were asked to leave.
};

/// Ranks ended before their loops returned.
struct ranks_failed {
  std::uint64_t attempt = 0;
  std::map<int, rank_failure> failures;
};

/// Answers `run_action::stop_group`: nothing of the group is left.
struct group_stopped {
  std::uint64_t attempt = 0;
};

/// Answers `run_action::stop_group`: something of the group may be left.
struct group_stop_failed {
  std::uint64_t attempt = 0;
  error reason;
};

/// Something other than the group failed (storage, a callback) and no restart
/// can help.
struct run_failed {
  error reason;
};

/// End the run in good order.
struct stop_requested {
  error reason{ec::stopped, "the run was asked to stop"};
};

/// The run has to go: let ranks leave their loops with a last checkpoint.
struct preempt_requested {
  error reason{ec::stopped, "the run was preempted"};
};

/// The ranks of a run that was preempted have had their time.
struct grace_over {
  std::uint64_t attempt = 0;
};

/// End the run now; no one waits for the group.
struct abort_requested {
  error reason{ec::stopped, "the run was aborted"};
};

} // namespace run_events

using run_event =
  std::variant<run_events::size_decided, run_events::size_undecided,
               run_events::group_started, run_events::group_start_failed,
               run_events::ranks_finished, run_events::ranks_failed,
               run_events::group_stopped, run_events::group_stop_failed,
               run_events::run_failed, run_events::stop_requested,
               run_events::abort_requested, run_events::preempt_requested,
               run_events::grace_over>;

/// Whether *x* says what became of a group. A run that does not expect such a
/// fact has heard something wrong, which only a defect of ours can bring about;
/// any other event may have come too late.
bool tells_of_group(const run_event& x) noexcept;

/// The event's type as it is spelled in the code.
std::string_view name_of(const run_event& x) noexcept;

} // namespace troupe
