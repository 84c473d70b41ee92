#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "troupe/callbacks/wandb/wandb_records.hpp"

namespace troupe {

/// Decides which rows W&B gets, and their steps.
///
/// W&B's steps rise strictly: it moves a row that does not behind the one
/// before, and with it all that follow. So what a rollback brings once more is
/// not written, and a row's own number stands in it as a value, too.
struct wandb_steps {
  static constexpr auto none = std::numeric_limits<std::int64_t>::min();

  std::int64_t last = -1;       ///< Highest step.
  std::int64_t report = -1;     ///< Highest report index.
  std::int64_t logged = none;   ///< Highest step that the loop logged.
  std::int64_t repeated = none; ///< Logged steps up to here come once more.

  bool operator==(const wandb_steps&) const = default;

  /// The step of report *index*; nothing if W&B has it.
  std::optional<std::int64_t> next_report(std::int64_t index) {
    if (index <= report)
      return std::nullopt;
    report = index;
    return next(index);
  }

  /// The step of what the loop logged at *step*; nothing if W&B has it.
  std::optional<std::int64_t> next_logged(std::int64_t step) {
    if (step <= repeated)
      return std::nullopt;
    logged = std::max(logged, step);
    return next(step);
  }

  /// A new attempt goes back to a checkpoint.
  void begin_attempt() { repeated = logged; }

  /// A row that the file holds already, though its place was not saved: it will
  /// be given again.
  void take(const wandb_seen& row) {
    last = std::max(last, row.step.value_or(last));
    report = std::max(report, row.report.value_or(report));
    logged = std::max(logged, row.logged.value_or(logged));
    if (row.logged)
      repeated = logged;
  }

private:
  std::int64_t next(std::int64_t wanted) {
    return last = std::max(last + 1, wanted);
  }
};

} // namespace troupe
