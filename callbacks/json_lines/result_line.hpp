#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "troupe/callbacks/json_lines/result_json_options.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/callbacks/tracking/tracker_record.hpp"

namespace troupe {

/// The times of a run that each line of `result.json` counts from.
struct result_clock {
  using time_point = std::chrono::system_clock::time_point;
  using duration = std::chrono::system_clock::duration;

  time_point last;              ///< Latest report, or begin of the attempt.
  time_point restore;           ///< Begin of the attempt.
  duration iteration{};         ///< From the report before to the latest.
  duration total{};             ///< Of all iterations.
  std::uint64_t iterations = 0; ///< Since `restore`.

  /// An attempt begins at *time*.
  void begin(time_point time) {
    last = restore = time;
    iterations = 0;
  }

  /// A report came at *time*.
  void count(time_point time) {
    iteration = time - last;
    total += iteration;
    last = time;
    ++iterations;
  }
};

/// Appends the line for *row*, which *record* holds and *clock* has counted.
///
/// Metrics under their own names, groups as objects; beside them what Ray's old
/// `result.json` has (`training_iteration` from 1, `timestamp` and the
/// `time_…_s` in seconds, `date` in UTC, …) and `step`, `time_ms`, `attempt`,
/// `seq`, `world_size`. A metric of the same name takes the place of one of
/// these.
void append_result_line(std::string& out, const tracked_run& run,
                        const tracker_record& record, const history_row& row,
                        const result_clock& clock,
                        const result_json_options& options);

} // namespace troupe
