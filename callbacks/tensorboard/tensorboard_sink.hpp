#pragma once

#include <memory>
#include <optional>
#include <string>

#include "troupe/callbacks/tensorboard/event_files.hpp"
#include "troupe/callbacks/tensorboard/sink_progress.hpp"
#include "troupe/callbacks/tensorboard/tensorboard_options.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe {

/// Writes event files that TensorBoard shows: numbers as scalars, texts where
/// they change, histograms, images, params for the page "HParams". Every
/// attempt has a file of its own, which tells readers to forget what was lost
/// to a rollback. Every record is in a file once, however often writing was
/// broken off.
class tensorboard_sink : public sink {
public:
  explicit tensorboard_sink(tensorboard_options options = {});

  std::string name() const override { return "tensorboard"; }
  std::string options() const override;
  expected<void> check(const tracked_run& run) const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override;
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  fs::path folder() const;
  expected<void> open();
  /// Begins or ends the file as *record* asks, adds its records to *out*.
  sink_result take(const tracker_record& record, std::string& out,
                   tensorboard::sink_progress& now);
  expected<void> begin_attempt(const tracker_record& record,
                               const attempt_record& attempt, std::string& out,
                               tensorboard::sink_progress& now);
  expected<void> write_out(std::string& out);
  expected<void> write_params(const metrics& logged);
  metrics params_with(const metrics& logged) const;
  sink_result fail(const error& reason);

  tensorboard_options options_;
  tracked_run run_;
  tensorboard::sink_progress done_;               // confirmed
  std::optional<tensorboard::event_files> files_; // empty: to be opened again
  bool warned_of_step_ = false;
};

/// *options_json* as `tensorboard_sink::options` gives it, members left out
/// have their default. Throws `std::exception` for what cannot be read.
std::unique_ptr<sink> make_tensorboard_sink(const std::string& options_json);

} // namespace troupe
