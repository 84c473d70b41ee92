#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "troupe/callbacks/csv/csv.hpp"
#include "troupe/callbacks/csv/csv_table.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal {

/// Writes reports and metrics that the train loop logged as rows of a CSV file
/// in the run's folder.
///
/// Columns: `index` (of the report), `attempt`, `time` (seconds since 1970),
/// `step`, `world_size`, `checkpoint`, then all metrics in order of appearance.
/// A metric with the name of one of these columns replaces it. Each row is in
/// the file exactly once, however often writing was interrupted.
class csv_sink : public built_in_sink {
public:
  using options_type = csv_options;

  explicit csv_sink(csv_options options = {});

  std::string name() const override { return "csv"; }
  std::string file() const override { return options_.file; }
  std::string options() const override;
  std::shared_ptr<sink> another() const override {
    return std::make_shared<csv_sink>(options_);
  }
  expected<void> check(const tracked_run& run) const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override;
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  sink_result open();
  expected<void> write(std::span<const tracker_record> records);
  std::optional<metrics> cells_of(const tracker_record& record) const;

  csv_options options_;
  fs::path path_;
  std::stop_token over_;
  std::optional<csv::table> table_;   // empty: must be opened again
  std::optional<std::uint64_t> rows_; // confirmed
};

} // namespace troupe::internal
