#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/run/failure_policy.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// The facts that a `run_state_machine` decides on. Those about a group name
/// its attempt: one of another attempt is refused.
namespace run_events {

/// Answers `run_action::wait`.
struct wait_over {
  std::uint64_t attempt = 0;
};

/// Every rank runs its loop.
struct ranks_started {
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

/// The ranks have left for the next attempt, or were lost with hosts that the
/// run can do without, or could not start there.
struct ranks_left {
  std::uint64_t attempt = 0;
  std::string why;
};

/// Answers `run_action::stop_group`: nothing of the group is left.
struct group_stopped {
  std::uint64_t attempt = 0;
};

/// Something other than the group failed (storage, a callback) and no restart
/// can help.
struct fatal_failure {
  error reason;
};

/// Stop the run, with time for its ranks to leave.
struct stop_requested {
  error reason{ec::stopped, "the run was asked to stop"};
};

/// The run is preempted: let ranks leave their loops with a last checkpoint.
struct preempt_requested {
  error reason{ec::stopped, "the run was preempted"};
};

/// The run has trained enough before its first group: there is nothing to do.
struct completed {
  bool operator==(const completed&) const = default;
};

/// The grace of a preempted run is over.
struct grace_over {
  std::uint64_t attempt = 0;
};

} // namespace run_events

using run_event =
  std::variant<run_events::wait_over, run_events::ranks_started,
               run_events::group_start_failed, run_events::ranks_finished,
               run_events::ranks_failed, run_events::group_stopped,
               run_events::fatal_failure, run_events::stop_requested,
               run_events::preempt_requested, run_events::grace_over,
               run_events::completed, run_events::ranks_left>;

/// Whether *x* says what became of a group. An unexpected fact of this
/// kind is a defect of Troupe; any other event may only have come too
/// late.
bool is_about_group(const run_event& x) noexcept;

/// The event's type as it is spelled in the code.
std::string_view name_of(const run_event& x) noexcept;

/// What the owner of a `run_state_machine` does next.
struct run_action {
  enum class kind : std::uint8_t {
    none,        ///< Nothing.
    wait,        ///< After `delay`, answer `wait_over`.
    start_group, ///< Start the ranks of `attempt`; answer `ranks_started` or
                 ///< `group_start_failed`.
    stop_group,  ///< Stop the ranks of `attempt` for `reason` (`ec::none`: they
                 ///< are done); answer `group_stopped`, at once if there is no
                 ///< such group.
    preempt_group, ///< Ask the ranks of `attempt` to leave their loops for
                   ///< `reason`; answer `grace_over` if they take too long.
    end,           ///< The run is over; `reason` says why unless it finished.
  };

  kind what = kind::none;
  std::uint64_t attempt = 0;
  std::chrono::milliseconds delay{0};
  error reason;

  bool operator==(const run_action&) const = default;
};

/// What one event led to. *from* and *to* are equal if the state stayed.
struct run_decision {
  run_state from = run_state::initializing;
  run_state to = run_state::initializing;
  run_action action;

  bool operator==(const run_decision&) const = default;
};

/// The states of one run: an event in, a decision out. Knows no clock and no
/// actor.
///
/// The first thing its owner does is `begin()`'s action. Invariants (the tests
/// cite them by name):
///   RSM-1  A new attempt begins with initializing, restarting and
///          rescheduling, and nowhere else: no two groups have the same number,
///          since ranks of a group that did not come up may have begun.
///   RSM-2  Between two `start_group` lies a `group_stopped` or a
///          `group_start_failed`: two groups never overlap.
///   RSM-3  Failures of one group are charged once, however many ranks fail and
///          however late.
///   RSM-4  An event that the state does not know, or of another attempt, is
///          refused with `ec::protocol` and changes nothing.
///   RSM-5  A run that was ending with an error keeps that error.
///   RSM-6  Ranks that fail after they were asked to leave are not charged and
///          not restarted.
///   RSM-7  A group that left to be continued is not charged, and the next one
///          starts at once, as long as reports are stored in between.
class run_state_machine {
public:
  /// *first_attempt* is the number of this driver's first attempt.
  explicit run_state_machine(const failure_config& config,
                             std::uint64_t first_attempt = 0)
    : run_state_machine(failure_policy{config}, first_attempt) {}

  explicit run_state_machine(failure_policy policy,
                             std::uint64_t first_attempt = 0)
    : policy_(std::move(policy)), attempt_(first_attempt),
      group_(first_attempt) {}

  /// Starts the first group, unless the run was ended before. Once.
  run_decision begin() {
    return state_ == run_state::initializing ? start_group() : stay();
  }

  expected<run_decision> apply(const run_event& x);

  /// A report was stored: the next failure is a new one.
  void on_progress() noexcept { policy_.on_progress(); }

  run_state state() const noexcept { return state_; }

  /// The current attempt; between two groups already the next one.
  std::uint64_t attempt() const noexcept { return attempt_; }

  /// Whether `stop_group` waits for its answer.
  bool is_stopping() const noexcept { return stopping_; }

  /// Whether the group of *attempt* is to run until its ranks end: the run
  /// continues only after an event about that end.
  bool awaits_group(std::uint64_t attempt) const noexcept {
    return !stopping_ && attempt == group_
           && (state_ == run_state::running || state_ == run_state::scheduling);
  }

  /// The failed ranks of the last group that failed, the first failure of each.
  const std::map<int, rank_failure>& failures() const noexcept {
    return failures_;
  }

  const failure_policy& policy() const noexcept { return policy_; }

private:
  using kind = run_action::kind;

  expected<run_decision> on(const run_events::wait_over& x);
  expected<run_decision> on(const run_events::ranks_started& x);
  expected<run_decision> on(const run_events::group_start_failed& x);
  expected<run_decision> on(const run_events::ranks_finished& x);
  expected<run_decision> on(const run_events::ranks_failed& x);
  expected<run_decision> on(const run_events::group_stopped& x);
  expected<run_decision> on(const run_events::fatal_failure& x);
  expected<run_decision> on(const run_events::stop_requested& x);
  expected<run_decision> on(const run_events::preempt_requested& x);
  expected<run_decision> on(const run_events::grace_over& x);
  expected<run_decision> on(const run_events::completed& x);
  expected<run_decision> on(const run_events::ranks_left& x);

  /// Moves to *to* and returns the decision with *action*.
  run_decision go(run_state to, run_action action = {});
  run_decision stay() { return go(state_); }
  run_decision start_group();
  run_decision start_group_after(run_state to, std::chrono::milliseconds delay,
                                 error why);
  /// Moves to *to* and stops the group unless that is under way already.
  run_decision stop_group(run_state to, error why);
  run_decision shut_down(run_state outcome, error why);
  run_decision end();
  tl::unexpected<error> refused_event(std::string_view event) const;
  tl::unexpected<error> refuse_attempt(std::uint64_t attempt) const;

  failure_policy policy_;
  run_state state_ = run_state::initializing;
  run_state outcome_ = run_state::finished; // where shutting_down leads
  std::uint64_t attempt_;
  std::uint64_t group_;   // attempt of the last group that was started
  bool stopping_ = false; // stop_group is unanswered
  error preemption_;      // why the ranks were asked to leave
  std::chrono::milliseconds restart_delay_{0};
  error reason_; // why the run does not finish; none while it still may
  std::map<int, rank_failure> failures_;
};

} // namespace troupe::internal
