#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

/// How long its owner has been waiting, without time in which a signal had
/// stopped the process. The owner calls `passed` at least once per `interval`;
/// a much later call means that the process was stopped.
class wait_time {
public:
  using duration = std::chrono::milliseconds;
  using time_point = std::chrono::steady_clock::time_point;

  /// Longest time between two calls of `passed`.
  static constexpr duration interval = std::chrono::seconds{1};

  /// Begins now.
  explicit wait_time(
    std::function<time_point()> now = std::chrono::steady_clock::now)
    : now_(std::move(now)), called_(now_()) {}

  /// The time so far.
  duration passed() {
    auto now = now_();
    auto since = now - std::exchange(called_, now);
    if (!stood_still(since, interval))
      passed_ += since;
    return std::chrono::duration_cast<duration>(passed_);
  }

private:
  std::function<time_point()> now_;
  time_point called_;
  time_point::duration passed_{0};
};

/// Decides when a callback that does not answer is named, and when the run
/// continues without it. Its owner moves the time, and calls `check` when
/// `next_check` says: a much later call means that the process was stopped or
/// the machine slept. That time does not count.
///
/// *real* is the time by a monotonic clock.
class callback_watchdog {
public:
  using duration = std::chrono::milliseconds;
  using time_point = std::chrono::steady_clock::time_point;

  enum class verdict {
    wait,    ///< It answers in time, or none is called.
    name,    ///< It has not answered for another *timeout*: name it.
    give_up, ///< It has not answered for *limit*.
  };

  /// Unset *limit*: none. A *timeout* of zero names no one.
  explicit callback_watchdog(duration timeout = duration{0},
                             std::optional<duration> limit = std::nullopt)
    : timeout_(timeout), limit_(limit) {}

  /// Longest time between two checks while a callback is called.
  static constexpr duration interval = std::chrono::seconds{1};

  /// A callback is called now.
  void asked(time_point now, time_point real);
  void asked(time_point now) { asked(now, now); }

  /// It has answered, or is no longer waited for.
  void answered() noexcept { since_.reset(); }

  verdict check(time_point now, time_point real);
  verdict check(time_point now) { return check(now, now); }

  /// How long the current callback has not answered.
  duration waited(time_point now) const;

  /// Time from *now* until `check` is to be called; unset: none is called, or
  /// there is no limit.
  std::optional<duration> next_check(time_point now) const;

private:
  duration timeout_;
  std::optional<duration> limit_;
  std::optional<time_point> since_;
  time_point next_name_;
  time_point checked_; ///< By *real*.
};

} // namespace troupe::internal
