#pragma once

#include <chrono>
#include <functional>
#include <utility>

namespace troupe {

/// How long its owner has been waiting, without the time in which the process
/// stood still because a signal had stopped it. The owner calls `passed` at
/// least once per `interval`; a call that comes much later shows a standstill.
class wait_time {
public:
  using duration = std::chrono::milliseconds;
  using time_point = std::chrono::steady_clock::time_point;

  /// Longest time between two calls of `passed`.
  static constexpr duration interval = std::chrono::seconds{1};

  /// A call that comes so much later than it was due is a sign that the process
  /// stood still.
  static constexpr duration much_later = std::chrono::seconds{1};

  /// Begins now.
  explicit wait_time(
    std::function<time_point()> now = std::chrono::steady_clock::now)
    : now_(std::move(now)), called_(now_()) {}

  /// The time so far.
  duration passed() {
    auto now = now_();
    auto since = now - std::exchange(called_, now);
    if (since <= interval + much_later)
      passed_ += since;
    return std::chrono::duration_cast<duration>(passed_);
  }

private:
  std::function<time_point()> now_;
  time_point called_;
  time_point::duration passed_{0};
};

} // namespace troupe
