#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "troupe/callbacks/report_page/report_page.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/run_layout.hpp"

namespace troupe::internal {

/// Keeps a run's `report.html` up to date: it is rewritten when an attempt
/// begins, after a checkpoint and at the end.
///
/// Pages of checkpoints may take at most 5 % of the time. A page that is due
/// sooner is postponed until the next records.
class report_page_sink : public built_in_sink {
public:
  using clock = std::function<std::chrono::steady_clock::time_point()>;

  explicit report_page_sink(clock now = &std::chrono::steady_clock::now);

  std::string name() const override { return "report_page"; }
  std::string file() const override { return run_layout::report_page; }
  std::string options() const override { return "{}"; }

  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;

  /// The page needs nothing but the run's folder.
  std::string state() const override { return {}; }

  bool finish_writes_all() const override { return true; }

  /// It reads the values itself.
  std::size_t ranks() const override { return 0; }

private:
  sink_result write();

  clock now_;
  std::stop_token cancelled_;
  std::optional<report_page> page_;
  bool due_ = false; ///< There is news that the page does not show yet.
  std::chrono::steady_clock::time_point next_write_; ///< Not before.
};

/// *options* is `{}`: there are none.
std::unique_ptr<sink> make_report_page_sink(const std::string& options);

} // namespace troupe::internal
