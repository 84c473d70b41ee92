#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "troupe/callbacks/tensorboard/event_files.hpp"
#include "troupe/callbacks/tensorboard/tensorboard.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe::internal::tensorboard {

/// Finds the step from which on readers must discard events after a rollback.
///
/// Reports count 0, 1, 2, …, while the loop logs with its own steps, which are
/// often far higher. Readers know one step for both. The chosen one discards
/// nothing valid, and as much as possible of the rest.
class step_marks {
public:
  /// Reports with which an attempt may begin, each with the highest step logged
  /// by then; oldest first.
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

  /// An attempt begins with report *next_report*: returns the step.
  std::int64_t roll_back(std::uint64_t next_report) {
    while (!marks_.empty() && marks_.back().first > next_report)
      marks_.pop_back();
    if (next_report == 0)
      highest_ = -1;
    else if (!marks_.empty() && marks_.back().first == next_report)
      highest_ = marks_.back().second;
    auto first = static_cast<std::int64_t>(next_report);
    return first > highest_ ? first : highest_ + 1;
  }

  std::int64_t highest() const noexcept { return highest_; }
  const mark_list& marks() const noexcept { return marks_; }

private:
  // Runs usually resume from their latest checkpoint, sometimes an earlier one.
  static constexpr std::size_t max_marks = 16;

  std::int64_t highest_ = -1;
  mark_list marks_;
};

/// How far a sink has come: all that another process needs to continue.
struct sink_progress {
  event_place place;
  bool has_attempt = false; ///< The file belongs to an attempt.
  metrics params;           ///< Logged by the loop, besides its config.
  std::map<std::string, std::uint64_t> texts; ///< Tag to checksum of its text.
  step_marks steps;
};

std::string to_json(const sink_progress& x);

/// Reads what `to_json` wrote.
expected<sink_progress> progress_from_json(const std::string& text);

/// Appends the events for *record*, if event files can show it, and adds its
/// texts and steps to *progress*. An image whose file is missing is rejected.
sink_result append_record(std::string& out, const tracker_record& record,
                          const tensorboard_options& options,
                          sink_progress& progress);

/// The step at which TensorBoard shows *record*; -1: none.
std::int64_t step_of(const tracker_record& record);

} // namespace troupe::internal::tensorboard
