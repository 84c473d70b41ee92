#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "troupe/callbacks/json_lines/result_json.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/storage/append_file.hpp"

namespace troupe::internal {

/// The times of a run that the lines of `result.json` need.
struct result_clock {
  using time_point = std::chrono::system_clock::time_point;
  using duration = std::chrono::system_clock::duration;

  time_point last;              ///< Latest report, or start of the attempt.
  time_point restore;           ///< Start of the attempt.
  duration iteration{};         ///< From the previous report to the latest.
  duration total{};             ///< Of all iterations.
  std::uint64_t iterations = 0; ///< Since `restore`.

  /// An attempt begins at *time*.
  void begin(time_point time) {
    last = restore = time;
    iterations = 0;
  }

  /// A report arrived at *time*.
  void count(time_point time) {
    iteration = time - last;
    total += iteration;
    last = time;
    ++iterations;
  }
};

/// Writes `result.json`, with one JSON object per line and report, and
/// `params.json` to the run's folder, in the format of Ray's earlier runs. Each
/// report is in the file exactly once, however often writing was interrupted.
class result_json_sink : public built_in_sink {
public:
  using options_type = result_json_options;

  explicit result_json_sink(result_json_options options = {});

  std::string name() const override { return "result_json"; }
  std::string options() const override;
  std::shared_ptr<sink> another() const override {
    return std::make_shared<result_json_sink>(options_);
  }
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override;
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  expected<void> open();
  expected<void> write(std::span<const tracker_record> records);
  /// Adds *params* to `params.json`.
  expected<void> add_params(const metrics& params) const;

  result_json_options options_;
  tracked_run run_;
  std::optional<record_file> file_;   // empty: must be opened again
  std::optional<std::uint64_t> size_; // of the confirmed file, bytes
  result_clock clock_;                // confirmed
};

} // namespace troupe::internal
