#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/wandb/wandb.hpp"
#include "troupe/callbacks/wandb/wandb_batch.hpp"
#include "troupe/callbacks/wandb/wandb_files.hpp"
#include "troupe/callbacks/wandb/wandb_host.hpp"
#include "troupe/callbacks/wandb/wandb_records.hpp"
#include "troupe/callbacks/wandb/wandb_settings.hpp"
#include "troupe/callbacks/wandb/wandb_upload.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// The state of the W&B sink, which a restarted one continues from.
struct wandb_place {
  std::string fragment;   ///< Name of the newest folder; empty: none.
  std::uint64_t size = 0; ///< Bytes of its log that are confirmed.
  bool closed = false;    ///< Its log has an exit record ...
  bool ended = false;     ///< ... that says how the run ended.
  wandb_steps steps;
  std::uint64_t console = 0; ///< Bytes of rank 0's log already shown.

  bool operator==(const wandb_place&) const = default;
};

/// Shows a run in Weights & Biases: writes W&B's own files, which W&B's own
/// client uploads. Every process that drives the run has a folder; the client
/// joins them by the run's id.
///
/// Invariants:
///   WB-1  A row is in the files once, whichever process was killed when.
///   WB-2  Steps increase strictly, across restarts too.
///   WB-3  Every log but the newest ends with its exit record.
class wandb_sink final : public built_in_sink {
public:
  using options_type = wandb_options;

  explicit wandb_sink(wandb_options options);

  std::string name() const override { return "wandb"; }
  std::string options() const override;
  std::shared_ptr<sink> another() const override {
    return options_.run_id.empty() ? std::make_shared<wandb_sink>(options_)
                                   : nullptr;
  }
  expected<void> check(const tracked_run& run) const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override;
  std::vector<std::string> take_notes() override {
    return std::exchange(notes_, {});
  }
  expected<std::optional<offline_files>>
  offline(const tracked_run& run) const override;
  sink_result upload(const tracked_run& run) override;
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  expected<void> repair_earlier();
  expected<void> repair(const wandb_fragment& x, std::uint64_t from);
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
  std::optional<wandb_fragment> fragment_; ///< Of this process.
  std::optional<wandb_log> log_;
  wandb_records records_;
  wandb_upload upload_;
  std::vector<std::string> notes_;
  bool announced_ = false; ///< The user knows why nothing is uploaded.
  host_stats stats_;
  std::optional<std::chrono::steady_clock::time_point> stats_time_;
};

} // namespace troupe::internal
