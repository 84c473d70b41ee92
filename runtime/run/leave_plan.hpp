#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "troupe/runtime/values/run_context.hpp"

namespace troupe::internal {

/// Why the ranks of one attempt are to leave their loops, and after which
/// report.
///
/// Invariants (the tests cite them by name):
///   LP-1  All ranks leave after the same report, which the first notice fixes:
///         ranks that do not wait for answers may be ahead of it.
///   LP-2  Of several reasons the first of these counts: the run has trained
///         enough, it is preempted, another attempt continues it.
///   LP-3  Of several reasons to continue in another attempt, that with the
///         earliest deadline counts.
class leave_plan {
public:
  /// Further away than any deadline.
  static constexpr std::int64_t never_ms =
    std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::duration::max())
      .count();

  /// What ranks learn with the answer to a report. Deadlines are by the clock
  /// of the one that plans.
  struct notice {
    std::uint64_t after = 0; ///< Index of their last report.
    std::string reason;
    std::int64_t deadline_ms = 0;
    stop_info::kind_type kind = stop_info::kind_type::preempted;
  };

  /// How the attempt ended, apart from failures.
  struct outcome {
    bool preempted = false;
    /// Why another attempt continues; empty: it need not.
    std::string left_for;
  };

  /// A rank has sent report *index* and does not wait for its answer.
  void ran_ahead(std::uint64_t index) noexcept;

  void train_no_more(std::string why) { enough_ = std::move(why); }

  void preempt(std::string why, std::int64_t deadline_ms) {
    preemption_ = reason{std::move(why), deadline_ms};
  }

  /// Another attempt is to continue. Returns whether that is new (LP-3).
  bool continue_later(std::string why, std::int64_t deadline_ms = never_ms);

  /// *deadline_ms* has passed. If it is that of the reason to continue, ranks
  /// have no more time: returns the reason.
  std::optional<std::string> time_is_over(std::int64_t deadline_ms);

  /// For the answer to report *index*; nothing while ranks may stay.
  std::optional<notice> notice_for(std::uint64_t index);

  /// *all_returned*: every loop has returned; *next_report* would have been
  /// the next one. A loop may return before it has learned of the plan.
  outcome outcome_of(bool all_returned, std::uint64_t next_report) const;

private:
  struct reason {
    std::string why;
    std::int64_t deadline_ms = never_ms;
  };

  std::optional<std::string> enough_;
  std::optional<reason> preemption_;
  std::optional<reason> continuation_;
  bool is_over_ = false; // the time of the continuation
  std::optional<std::uint64_t> after_;
  std::optional<std::uint64_t> ahead_; // latest report sent ahead of answers
};

/// The deadline of a `leave_plan` by the clock of another host. Clocks of hosts
/// differ, so that what is left of it travels. It is fixed by the first answer
/// that names it: all ranks of a host have one, and keep it.
class local_deadline {
public:
  /// *left_ms* are left of the deadline *name_ms* at *now_ms*. Returns when it
  /// is, by the same clock as *now_ms*.
  std::int64_t of(std::int64_t name_ms, std::int64_t left_ms,
                  std::int64_t now_ms) noexcept;

private:
  std::optional<std::int64_t> name_ms_;
  std::int64_t at_ms_ = leave_plan::never_ms;
};

} // namespace troupe::internal
