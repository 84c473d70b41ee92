#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/callbacks/wandb/wandb_fragment.hpp"
#include "troupe/callbacks/wandb/wandb_log.hpp"
#include "troupe/callbacks/wandb/wandb_options.hpp"
#include "troupe/callbacks/wandb/wandb_records.hpp"
#include "troupe/callbacks/wandb/wandb_steps.hpp"

namespace troupe {

/// Where records are encoded to.
struct wandb_target {
  const wandb_options& options;
  const tracked_run& run;
  const wandb_fragment& fragment;
  wandb_log& log;
  wandb_records& records;
};

/// Turns the records of one call into a log's records.
class wandb_batch {
public:
  /// *steps* go on with each row.
  wandb_batch(const wandb_target& target, wandb_steps& steps)
    : target_(target), steps_(steps) {}

  /// Adds *x*; rejected if it can never be taken: a file that is gone or a name
  /// that leads out of the folder.
  sink_result add(const tracker_record& x);

  /// Adds what is held back: a row to which more values of the same step might
  /// have come, and the latest value of each name.
  void close();

private:
  using clock = std::chrono::system_clock;

  struct row {
    std::int64_t step = 0;
    std::int64_t logged = 0;
    clock::time_point time;
    std::vector<wandb_item> items;
  };

  void add_report(const history_row& x, const tracker_record& record);
  sink_result add_image(const logged_image& x, const tracker_record& record);
  void add_histogram(const logged_histogram& x, const tracker_record& record);
  sink_result add_artifact(const logged_artifact& x);
  sink_result add_file(const fs::path& from, const fs::path& name,
                       bool is_media);
  void add_config(const metrics& values);
  void add_values(std::vector<wandb_item>& items, const metrics& values) const;

  /// The row of what the loop logged at *step*; nullptr if W&B has it.
  row* row_at(std::int64_t step, const tracker_record& record);
  void write(row x);
  void close_row();

  wandb_target target_;
  wandb_steps& steps_;
  std::optional<row> open_;
  std::map<std::string, wandb_item> latest_;
};

} // namespace troupe
