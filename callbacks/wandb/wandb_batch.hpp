#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/callbacks/wandb/wandb.hpp"
#include "troupe/callbacks/wandb/wandb_files.hpp"
#include "troupe/callbacks/wandb/wandb_records.hpp"

namespace troupe::internal {

/// Decides which rows W&B gets, and their steps.
///
/// W&B needs strictly increasing steps: it moves a row with a lower one behind
/// its predecessor, and so shifts all later rows. So reports that a rollback
/// repeats are not written, and each row also holds its own number as a value.
/// Whether a loop repeats what it logs is not known: its steps may begin again,
/// and the steps of an epoch may lie below those of its batches.
struct wandb_steps {
  static constexpr auto none = std::numeric_limits<std::int64_t>::min();

  /// An attempt, and a step that its loop logged.
  using logged_place = std::pair<std::int64_t, std::int64_t>;

  std::int64_t last = -1;      ///< Highest step.
  std::int64_t report = -1;    ///< Highest report index.
  std::int64_t attempt = none; ///< Of the rows that are given.
  /// Logged rows up to here are in the file and will be delivered again.
  logged_place written{none, none};

  bool operator==(const wandb_steps&) const = default;

  /// The step of report *index*; `nullopt` if W&B has it already.
  std::optional<std::int64_t> next_report(std::int64_t index) {
    if (index <= report)
      return std::nullopt;
    report = index;
    written = {none, none}; // It is new, and so is all that follows.
    return next(index);
  }

  /// The step of what the loop logged at *step*; `nullopt` if W&B has it.
  std::optional<std::int64_t> next_logged(std::int64_t step) {
    if (logged_place{attempt, step} <= written)
      return std::nullopt;
    written = {none, none}; // Rows come in order: all later ones are new.
    return next(step);
  }

  void begin_attempt(std::int64_t number) { attempt = number; }

  /// Counts a row that is in the file but unknown to the saved state: the row
  /// will be delivered again.
  void take(const wandb_seen& row) {
    last = std::max(last, row.step.value_or(last));
    report = std::max(report, row.report.value_or(report));
    logged_place place{std::max(written.first, row.attempt.value_or(attempt)),
                       row.logged.value_or(none)};
    written = std::max(written, place);
  }

private:
  std::int64_t next(std::int64_t wanted) {
    return last = std::max(last + 1, wanted);
  }
};

/// What a batch reads and where it writes.
struct wandb_target {
  const wandb_options& options;
  const tracked_run& run;
  const wandb_fragment& fragment;
  wandb_log& log;
  wandb_records& records;
};

/// Encodes the tracker records of one call as records of W&B's log.
class wandb_batch {
public:
  /// *steps* advances with each row.
  wandb_batch(const wandb_target& target, wandb_steps& steps)
    : target_(target), steps_(steps) {}

  /// Adds *x*. Rejects what can never succeed: a file that no longer exists, or
  /// a name that leads out of the folder.
  sink_result add(const tracker_record& x);

  /// Writes what was held back: the row that might have got more values of its
  /// step, and the latest value of each name.
  void close();

private:
  using clock = std::chrono::system_clock;

  struct row {
    std::int64_t step = 0;
    std::int64_t logged = 0;
    clock::time_point time;
    std::vector<wandb_item> items;
  };

  void add_report(const journaled_batch& x, const tracker_record& record);
  sink_result add_image(const logged_image& x, const tracker_record& record);
  void add_histogram(const logged_histogram& x, const tracker_record& record);
  sink_result add_artifact(const logged_artifact& x);
  sink_result add_file(const fs::path& from, const fs::path& name,
                       bool is_media);
  void add_config(const metrics& values);
  void add_values(std::vector<wandb_item>& items, const metrics& values) const;

  /// The row of what the loop logged at *step*; `nullptr` if W&B has it.
  row* row_at(std::int64_t step, const tracker_record& record);
  void write(row x);
  void close_row();

  wandb_target target_;
  wandb_steps& steps_;
  std::optional<row> open_;
  std::map<std::string, wandb_item> latest_;
};

} // namespace troupe::internal
