#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/values/run_status.hpp"

/// What follows from the signals that an `interrupt_watch` shows.
///
/// Invariants (the tests cite them by name):
///   SO-1  What was asked for once is not passed on again; only a stop is
///         passed on after a preemption, and nothing after a stop.
///   SO-2  Signals before the outcome of a run is fixed are the run's; those
///         after it are the program's, unless the run had to leave.
///   SO-3  An agent gives notice once, for the first signal, and only if that
///         preempts.
/// The third signal exits at once, whoever watches: `interrupt_watch`.
namespace troupe::internal {

/// What signals have asked for so far.
struct signals_seen {
  interrupt asked = interrupt::none;
  int count = 0; ///< How many have counted, with each that is in `asked`.

  static signals_seen by(const interrupt_watch& x) noexcept {
    auto asked = x.asked(); // First: a signal is counted before it is shown.
    return {asked, x.count()};
  }

  /// Whether a signal has come after the first one: what is left to do must be
  /// quick.
  bool repeated() const noexcept { return count > 1; }
};

/// How a run or a sweep ends by itself (`none`), or because it was *asked* to,
/// before it was done.
constexpr run_status_kind status_after(interrupt asked) noexcept {
  switch (asked) {
    case interrupt::stop:
      return run_status_kind::aborted;
    case interrupt::preempt:
      return run_status_kind::preempted;
    default:
      return run_status_kind::errored;
  }
}

/// Which request to end was passed on to a run, a trial, or the trials of a
/// sweep; from signals, or by others.
class end_orders {
public:
  /// Whether *asked* is more than what was passed on (SO-1).
  bool is_more(interrupt asked) const noexcept { return asked > passed_on_; }

  void passed_on(interrupt asked) noexcept { passed_on_ = asked; }

  /// The greatest request so far.
  interrupt last() const noexcept { return passed_on_; }

private:
  interrupt passed_on_ = interrupt::none;
};

/// Which signals are those of a run that `fit` manages, or of a trial. Its
/// functions may be called on any thread.
class signals_in_time {
public:
  /// Signals after *seen* come too late for the run. Only the first call
  /// counts.
  void outcome_is_fixed(signals_seen seen) noexcept {
    auto unknown = still_open;
    if (asked_.compare_exchange_strong(unknown, static_cast<int>(seen.asked)))
      count_ = seen.count;
  }

  /// Whether a signal has come since the outcome was fixed: what is left to do
  /// must then be quick.
  bool is_hurried(int count) const noexcept { return count > count_; }

  /// What signals asked for in time; `none` before the outcome is fixed.
  interrupt asked() const noexcept {
    auto asked = asked_.load();
    return asked == still_open ? interrupt::none
                               : static_cast<interrupt>(asked);
  }

  /// What the run has heeded once it has ended as *outcome* (SO-2), for
  /// `interrupt_watch::answer`.
  interrupt heeded(run_status_kind outcome) const noexcept {
    auto had_to_leave = outcome == run_status_kind::preempted
                        || outcome == run_status_kind::aborted;
    return had_to_leave ? interrupt::stop : asked();
  }

private:
  static constexpr int still_open = -1;

  std::atomic<int> asked_{still_open};
  std::atomic<int> count_{std::numeric_limits<int>::max()};
};

/// When the agent of a host leaves its run. Unlike a run, it does not pass a
/// stop on: the run continues without this host, so that it simply leaves.
class agent_signals {
public:
  using time_point = std::chrono::steady_clock::time_point;

  enum class step : std::uint8_t {
    wait,
    give_notice, ///< The driver lets ranks save what they have.
    leave,
  };

  step next(signals_seen seen, time_point now) const noexcept {
    if (seen.asked == interrupt::stop || (notified_ && seen.repeated())
        || (killed_ && now >= *killed_))
      return step::leave;
    return notified_ || seen.asked == interrupt::none ? step::wait
                                                      : step::give_notice;
  }

  /// The driver has notice. The sender of the signal kills this process after
  /// *grace*, if that is known.
  void gave_notice(time_point now,
                   std::optional<std::chrono::milliseconds> grace) noexcept {
    notified_ = true;
    if (grace)
      killed_ = now + *grace;
  }

  bool has_given_notice() const noexcept { return notified_; }

private:
  bool notified_ = false;
  std::optional<time_point> killed_;
};

} // namespace troupe::internal
