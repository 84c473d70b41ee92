#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troupe/callbacks/prometheus/prometheus.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// Writes Prometheus's text format 0.0.4.
class prometheus_text {
public:
  using labels = std::vector<std::pair<std::string_view, std::string>>;

  static constexpr std::string_view content_type =
    "text/plain; version=0.0.4; charset=utf-8";

  /// Begins the family *name*; *type* is `counter`, `gauge` or `histogram`. All
  /// its samples follow before the next family.
  void family(std::string_view name, std::string_view type,
              std::string_view help);

  /// A sample of the family or of its part *suffix*, such as `_sum`.
  void sample(const labels& of, double value, std::string_view suffix = {});
  void sample(const labels& of, std::uint64_t value,
              std::string_view suffix = {});

  const std::string& text() const noexcept { return text_; }

private:
  void begin_sample(const labels& of, std::string_view suffix);

  std::string family_;
  std::string text_;
};

/// Counts durations by size, from a millisecond to ten minutes.
class prometheus_histogram {
public:
  void add(double seconds) {
    for (std::size_t i = 0; i < limits.size(); ++i)
      if (seconds <= limits[i])
        ++counts_[i];
    ++count_;
    sum_ += seconds;
  }

  void write(prometheus_text& out, const prometheus_text::labels& of) const {
    auto bucket = [&](std::string limit, std::uint64_t count) {
      auto all = of;
      all.emplace_back("le", std::move(limit));
      out.sample(all, count, "_bucket");
    };
    for (std::size_t i = 0; i < limits.size(); ++i) {
      std::string limit;
      append_number(limit, limits[i]);
      bucket(std::move(limit), counts_[i]);
    }
    bucket("+Inf", count_);
    out.sample(of, sum_, "_sum");
    out.sample(of, count_, "_count");
  }

private:
  static constexpr std::array limits{0.001, 0.003, 0.01, 0.03, 0.1,   0.3,
                                     1.0,   3.0,   10.0, 30.0, 100.0, 600.0};

  std::array<std::uint64_t, limits.size()> counts_{}; ///< Cumulative.
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

/// The numbers of one run for Prometheus. Counters start at 0 in each process,
/// as Prometheus expects.
class run_gauges {
public:
  run_gauges(std::string run, std::size_t max_metrics, rank_values ranks)
    : run_(std::move(run)), max_metrics_(max_metrics), ranks_(ranks) {}

  void add(const tracker_record& x);

  /// How many metrics were dropped because of `max_metrics`.
  std::size_t left_out() const noexcept { return left_out_; }

  /// Appends all families; *now* is the run's status, if known. Without
  /// *gauges*, only counters and histograms.
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

} // namespace troupe::internal
