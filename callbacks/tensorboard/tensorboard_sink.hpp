#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/callbacks/tensorboard/event_files.hpp"
#include "troupe/callbacks/tensorboard/sink_progress.hpp"
#include "troupe/callbacks/tensorboard/tensorboard.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal {

/// Writes event files for TensorBoard: numbers as scalars, texts when they
/// change, histograms, images, and params for the page "HParams". Each attempt
/// has its own file, which makes readers discard what was lost to a rollback.
/// Each record is written exactly once, however often writing was interrupted.
class tensorboard_sink : public built_in_sink {
public:
  using options_type = tensorboard_options;

  explicit tensorboard_sink(tensorboard_options options = {});

  std::string name() const override { return "tensorboard"; }
  std::string options() const override;
  std::shared_ptr<sink> another() const override;
  expected<void> check(const tracked_run& run) const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override;
  std::vector<std::string> take_notes() override {
    return std::exchange(notes_, {});
  }
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  expected<fs::path> folder_in(const fs::path& run) const;
  expected<void> open();
  /// Appends the events of *record* to *out*; begins a file for an attempt.
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
  std::optional<tensorboard::event_files> files_; // empty: must be reopened
  std::vector<std::string> notes_;
  bool warned_of_step_ = false;
};

} // namespace troupe::internal
