#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/callbacks/prometheus/page_server.hpp"
#include "troupe/callbacks/prometheus/prometheus.hpp"
#include "troupe/callbacks/prometheus/run_gauges.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal {

/// Serves `/metrics` for Prometheus until it is destroyed.
class prometheus_sink final : public built_in_sink {
public:
  using options_type = prometheus_options;

  explicit prometheus_sink(prometheus_options options);

  std::string name() const override { return "prometheus"; }
  std::string options() const override;
  expected<void> check(const tracked_run& run) const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override { return {}; }
  std::vector<std::string> take_notes() override {
    return std::exchange(notes_, {});
  }
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  std::string page() const;

  prometheus_options options_;
  mutable std::mutex mutex_;
  tracked_run run_;
  std::optional<run_gauges> gauges_;
  std::optional<run_status> last_; ///< At the end of the run.
  std::optional<std::chrono::steady_clock::time_point> ended_;
  std::vector<std::string> notes_;
  bool warned_ = false;
  /// The last member: its thread uses the others.
  std::unique_ptr<page_server> server_;
};

} // namespace troupe::internal
