#pragma once

#include <chrono>
#include <optional>

namespace troupe {

/// Decides when people hear of a callback that does not answer, and when the
/// run continues without it. Its owner moves the time, and calls `check`
/// whenever `next_check` says: a call that comes much later means that the
/// process stood still, because a signal had stopped it or the machine slept.
/// That time does not count.
///
/// *real* is the time by a clock that no one moves.
class callback_alarm {
public:
  using duration = std::chrono::milliseconds;
  using time_point = std::chrono::steady_clock::time_point;

  enum class verdict {
    wait,    ///< It answers in time, or none is asked.
    name,    ///< It has not answered for another *timeout*: say so.
    give_up, ///< It has not answered for *limit*.
  };

  /// Unset *limit*: none. A *timeout* of zero names no one.
  explicit callback_alarm(duration timeout = duration{0},
                          std::optional<duration> limit = std::nullopt)
    : timeout_(timeout), limit_(limit) {}

  /// Longest time between two checks while a callback is asked.
  static constexpr duration interval = std::chrono::seconds{1};

  /// A callback is asked now.
  void asked(time_point now, time_point real);
  void asked(time_point now) { asked(now, now); }

  /// It has answered, or no one waits for it any more.
  void answered() noexcept { since_.reset(); }

  verdict check(time_point now, time_point real);
  verdict check(time_point now) { return check(now, now); }

  /// How long the one that is asked has not answered.
  duration waited(time_point now) const;

  /// Time from *now* until `check` is to be called; unset: no one is asked, or
  /// there is nothing to say.
  std::optional<duration> next_check(time_point now) const;

private:
  duration timeout_;
  std::optional<duration> limit_;
  std::optional<time_point> since_;
  time_point next_name_;
  time_point checked_; ///< By *real*.
};

} // namespace troupe
