#pragma once

#include <chrono>
#include <functional>
#include <utility>

namespace troupe {

/// How long its owner has been waiting, without the time in which the process
/// stood still because a signal had stopped it. Whoever waits looks at it at
/// least once per `interval`: a look that comes much later tells.
class wait_time {
public:
  using duration = std::chrono::milliseconds;
  using time_point = std::chrono::steady_clock::time_point;

  /// Longest time between two looks.
  static constexpr duration interval = std::chrono::seconds{1};

  /// A look that comes so much later than it was due is a sign that the process
  /// stood still.
  static constexpr duration much_later = std::chrono::seconds{1};

  /// Begins now.
  explicit wait_time(
    std::function<time_point()> now = std::chrono::steady_clock::now)
    : now_(std::move(now)), looked_(now_()) {}

  /// A look.
  duration passed() {
    auto now = now_();
    auto since = now - std::exchange(looked_, now);
    if (since <= interval + much_later)
      passed_ += since;
    return std::chrono::duration_cast<duration>(passed_);
  }

private:
  std::function<time_point()> now_;
  time_point looked_;
  time_point::duration passed_{0};
};

} // namespace troupe
