#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "troupe/callbacks/comet/comet_message.hpp"
#include "troupe/callbacks/comet/comet_settings.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal {

/// Shows a run in Comet, over REST or by an archive for `comet upload`.
///
/// Comet does not deduplicate: a point sent twice appears twice. The sink
/// remembers what it has sent of a failed batch, so that only a lost reply or a
/// killed driver repeats a point, with its step and time.
class comet_sink final : public built_in_sink {
public:
  using options_type = comet_options;

  explicit comet_sink(comet_options options);

  std::string name() const override { return "comet"; }
  std::string options() const override;
  std::shared_ptr<sink> another() const override {
    return options_.experiment_key.empty()
             ? std::make_shared<comet_sink>(options_)
             : nullptr;
  }
  expected<void> check(const tracked_run& run) const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override;
  std::vector<std::string> take_notes() override;
  expected<std::optional<offline_files>>
  offline(const tracked_run& run) const override;
  std::size_t ranks() const override { return ranks_for(options_.ranks); }
  std::size_t max_batch() const override { return 100; }

private:
  /// Sends what a new experiment begins with. The first that Comet refuses of
  /// that becomes a note, the others are counted.
  sink_result greet(const tracked_run& run);
  expected<void> prepare(std::span<const tracker_record> records);
  /// Keeps the latest points of *records*, if they have more than can be sent
  /// in the time in which they were reported.
  void thin_out(std::span<const tracker_record> records);

  comet_options options_;
  comet_mode mode_ = comet_mode::online;
  comet_messages messages_;
  std::unique_ptr<comet_backend> backend_;
  std::string run_id_;                  ///< Of the run that the backend is for.
  std::vector<comet_message> greeting_; ///< Not sent yet.
  std::size_t refused_ = 0;             ///< Of it.
  bool greeted_ = false;
  std::vector<std::string> notes_;
  /// Unsent messages of records, by the `end` of the record.
  std::map<std::uint64_t, std::vector<comet_message>> left_;
  /// When the last record that was taken was reported; unset: none yet.
  std::optional<std::chrono::system_clock::time_point> taken_until_;
  bool thinned_ = false;   ///< The user knows that points are left out.
  bool announced_ = false; ///< The user knows that there is no key.
};

} // namespace troupe::internal
