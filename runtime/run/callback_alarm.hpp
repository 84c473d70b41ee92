#pragma once

#include <chrono>
#include <optional>

namespace troupe {

/// Decides when people hear of a callback that does not answer, and when the
/// run goes on without it. Its owner moves the time.
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

  /// A callback is asked now.
  void asked(time_point now);

  /// It has answered, or no one waits for it any more.
  void answered() noexcept { since_.reset(); }

  verdict check(time_point now);

  /// How long the one that is asked has not answered.
  duration waited(time_point now) const;

  /// Time from *now* until `check` may say something new; unset: never.
  std::optional<duration> next_check(time_point now) const;

private:
  duration timeout_;
  std::optional<duration> limit_;
  std::optional<time_point> since_;
  time_point next_name_;
};

} // namespace troupe
