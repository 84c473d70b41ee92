#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "troupe/callbacks/encoding/record_file.hpp"
#include "troupe/callbacks/json_lines/result_json_options.hpp"
#include "troupe/callbacks/json_lines/result_line.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe {

/// Writes `result.json`, one object a line for each report, and `params.json`
/// into the run's folder, as programs know them from Ray's old runs. Every
/// report is in the file once, however often writing was broken off.
class result_json_sink : public sink {
public:
  explicit result_json_sink(result_json_options options = {});

  std::string name() const override { return "result_json"; }
  std::string options() const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override;
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  expected<void> open();
  expected<void> write(std::span<const tracker_record> records);
  /// Adds *params* to what `params.json` holds already.
  expected<void> add_params(const metrics& params) const;

  result_json_options options_;
  tracked_run run_;
  std::optional<record_file> file_;   // empty: to be opened again
  std::optional<std::uint64_t> size_; // of the file, as confirmed; bytes
  result_clock clock_;                // likewise
};

/// *options_json* as `result_json_sink::options` gives it, members left out
/// have their default. Throws `std::exception` for what cannot be read.
std::unique_ptr<sink> make_result_json_sink(const std::string& options_json);

} // namespace troupe
