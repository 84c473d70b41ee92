#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "troupe/callbacks/csv/csv_options.hpp"
#include "troupe/callbacks/csv/csv_table.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe {

/// Writes reports, and what the train loop logged beside them, as rows of a CSV
/// file in the run's folder.
///
/// Columns: `index` (of the report), `attempt`, `time` (seconds since 1970),
/// `step`, `world_size`, `checkpoint`, then every metric in the order in which
/// they turned up. A metric of the same name takes the place of a column of
/// ours. Every row is in the file once, however often writing was broken off.
class csv_sink : public sink {
public:
  explicit csv_sink(csv_options options = {});

  std::string name() const override { return "csv"; }
  std::string file() const override { return options_.file; }
  std::string options() const override;
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
  std::optional<csv::table> table_;   // empty: to be opened again
  std::optional<std::uint64_t> rows_; // that were confirmed
};

/// *options_json* as `csv_sink::options` gives it, members left out have their
/// default. Throws `std::exception` for what cannot be read.
std::unique_ptr<sink> make_csv_sink(const std::string& options_json);

} // namespace troupe
