#pragma once

#include <memory>
#include <optional>
#include <string>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/wandb/host_stats.hpp"
#include "troupe/callbacks/wandb/wandb_fragment.hpp"
#include "troupe/callbacks/wandb/wandb_log.hpp"
#include "troupe/callbacks/wandb/wandb_options.hpp"
#include "troupe/callbacks/wandb/wandb_place.hpp"
#include "troupe/callbacks/wandb/wandb_records.hpp"
#include "troupe/callbacks/wandb/wandb_settings.hpp"
#include "troupe/callbacks/wandb/wandb_upload.hpp"

namespace troupe {

/// Shows a run in Weights & Biases by W&B's own files, which W&B's own client
/// uploads. Each life of the run has a folder; the client joins them by id.
///
/// Invariants:
///   WB-1  A row is in the files once, whatever was killed when.
///   WB-2  Steps rise strictly, over all lives.
///   WB-3  Every log but the newest ends with its exit record.
class wandb_sink final : public sink {
public:
  explicit wandb_sink(wandb_options options);

  std::string name() const override { return "wandb"; }
  std::string options() const override;
  expected<void> check(const tracked_run& run) const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override { return to_json(place_); }
  expected<std::optional<offline_files>>
  offline(const tracked_run& run) const override;
  sink_result upload(const tracked_run& run) override;
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  expected<void> mend_earlier_lives();
  expected<void> mend(const wandb_fragment& x, std::uint64_t from);
  expected<void> open();
  expected<void> begin_fragment();
  void add_stats();
  void add_console(wandb_place& place);
  expected<void> flush(wandb_place place);
  sink_result upload_all(const wandb_settings& settings,
                         const std::stop_token& stop);

  wandb_options options_;
  tracked_run run_;
  wandb_settings settings_;
  wandb_place place_;
  std::optional<wandb_fragment> fragment_; ///< Of this life.
  std::optional<wandb_log> log_;
  wandb_records records_;
  wandb_upload upload_;
  bool told_ = false; ///< What the user must know about uploading.
  host_stats stats_;
  std::optional<std::chrono::steady_clock::time_point> stats_time_;
};

/// From what `options()` gave.
std::unique_ptr<sink> make_wandb_sink(const std::string& options_json);

} // namespace troupe
