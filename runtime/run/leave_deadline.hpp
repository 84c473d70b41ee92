#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace troupe::internal {

/// By when the ranks of a preempted run must have left their loops. Requests
/// may follow each other; only an earlier deadline replaces another.
class leave_deadline {
public:
  using milliseconds = std::chrono::milliseconds;
  using time_point = std::chrono::steady_clock::time_point;

  leave_deadline() = default;

  /// *usual* is the grace of requests that name none; none is longer than
  /// *longest*.
  leave_deadline(milliseconds usual, milliseconds longest)
    : usual_(usual), longest_(longest) {}

  /// A request came that gives ranks *grace_ms*, or names no grace (below 0).
  void ask(std::int64_t grace_ms) noexcept {
    grace_ = std::min(grace_ms < 0 ? usual_ : milliseconds{grace_ms}, longest_);
  }

  /// The grace of the last request.
  milliseconds grace() const noexcept { return grace_; }

  /// Sets the deadline of the last request. Returns false, and changes nothing,
  /// if ranks have one that is not later.
  bool set(time_point now) noexcept {
    auto end = now + grace_;
    if (end_ && *end_ <= end)
      return false;
    end_ = end;
    return true;
  }

private:
  milliseconds usual_{0};
  milliseconds longest_{0};
  milliseconds grace_{0};
  std::optional<time_point> end_;
};

} // namespace troupe::internal
