#pragma once

#include <cstdint>
#include <deque>
#include <utility>

namespace troupe::tensorboard {

/// Finds the step from which on all is to be forgotten after a rollback.
///
/// Reports count from 0 by one; what the loop logs beside them has steps of its
/// own, often far higher. A reader knows one step for both, so that the one
/// chosen loses nothing that is valid, and as much as possible of the rest.
class step_marks {
public:
  /// Reports before which an attempt may begin, and the highest step that the
  /// loop had logged then; the oldest first.
  using mark_list = std::deque<std::pair<std::uint64_t, std::int64_t>>;

  step_marks() = default;
  step_marks(std::int64_t highest, mark_list marks)
    : highest_(highest), marks_(std::move(marks)) {}

  /// The loop logged something at *step*.
  void logged(std::int64_t step) noexcept {
    highest_ = step > highest_ ? step : highest_;
  }

  /// An attempt may begin with report *next_report*.
  void mark(std::uint64_t next_report) {
    marks_.emplace_back(next_report, highest_);
    if (marks_.size() > max_marks)
      marks_.pop_front();
  }

  /// An attempt begins with report *next_report*.
  std::int64_t roll_back(std::uint64_t next_report) {
    while (!marks_.empty() && marks_.back().first > next_report)
      marks_.pop_back();
    if (next_report == 0)
      highest_ = -1;
    else if (!marks_.empty() && marks_.back().first == next_report)
      highest_ = marks_.back().second;
    const auto first = static_cast<std::int64_t>(next_report);
    return first > highest_ ? first : highest_ + 1;
  }

  std::int64_t highest() const noexcept { return highest_; }
  const mark_list& marks() const noexcept { return marks_; }

private:
  // Runs go back to their latest checkpoint, now and then to one before.
  static constexpr std::size_t max_marks = 16;

  std::int64_t highest_ = -1;
  mark_list marks_;
};

} // namespace troupe::tensorboard
