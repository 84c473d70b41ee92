#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/callbacks/prometheus/prometheus_histogram.hpp"
#include "troupe/callbacks/prometheus/prometheus_options.hpp"
#include "troupe/callbacks/tracking/tracker_record.hpp"
#include "troupe/runtime/run/run_status.hpp"

namespace troupe {

/// The numbers of one run as Prometheus is shown them. Counters begin with this
/// process, as Prometheus expects.
class run_gauges {
public:
  run_gauges(std::string run, std::size_t max_metrics, rank_values ranks)
    : run_(std::move(run)), max_metrics_(max_metrics), ranks_(ranks) {}

  void add(const tracker_record& x);

  /// How many metrics found no place under `max_metrics`.
  std::size_t left_out() const noexcept { return left_out_; }

  /// Appends all families; *now* is how the run is, if that is known. Without
  /// *gauges*, counters and histograms only.
  void write(prometheus_text& out, const std::optional<run_status>& now,
             bool gauges) const;

private:
  void add_values(const metrics& values);
  void write_counters(prometheus_text& out) const;
  void write_status(prometheus_text& out, const run_status& now) const;
  void write_gauges(prometheus_text& out) const;

  std::string run_;
  std::size_t max_metrics_;
  rank_values ranks_;
  std::uint64_t reports_ = 0;
  std::uint64_t attempts_ = 0;
  std::optional<std::uint64_t> attempt_;
  std::optional<std::uint64_t> report_; ///< Index of the last one.
  prometheus_histogram wait_;
  prometheus_histogram checkpoint_;
  std::vector<double> step_s_; ///< Per rank, of the last report.
  std::map<std::string, double> metrics_;
  std::size_t left_out_ = 0;
};

} // namespace troupe
