#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/timing.hpp"
#include "troupe/runtime/values/run_error.hpp"

namespace troupe::internal {

/// Whether a group that failed to start with *code* may start on a retry. With
/// an invalid configuration it cannot.
bool is_retryable(ec code) noexcept;

/// Decides after every failure whether the run continues.
///
/// Two independent budgets, counted over the whole run, across drivers
/// (`count_on`), and never reset by progress: ranks that failed while the
/// group ran, and groups that failed to start. A counter goes up first; the
/// run ends once it is over its limit, so that a limit of n allows n
/// restarts.
///
/// The first failure since a stored report is restarted at once. Further
/// failures without a report in between wait: a loop that dies at its first
/// line would otherwise be restarted a hundred times a second. So do groups
/// that leave to be continued, which are free as long as reports are stored in
/// between: hosts that come by themselves may go for ever.
class failure_policy {
public:
  using duration = std::chrono::milliseconds;

  /// Between two starts.
  static constexpr retry_delay delay{duration{100}, duration{10'000}};

  explicit failure_policy(const failure_config& config,
                          random_function random = make_random_function());

  /// Ranks of a running group failed. Returns how long to wait before the
  /// restart, or nothing if the run is to end. Zero for the first failure since
  /// `on_progress`; then `delay`, of which the jitter takes up to a half, so
  /// that many runs that failed for one reason do not restart together.
  std::optional<duration> on_ranks_failed();

  /// Groups that leave in a row without a stored report before they count as
  /// failures.
  static constexpr std::int64_t free_leaves = 10;

  /// The ranks of a group have left, or were lost with hosts that the run can
  /// do without, or could not start there. Returns how long to wait before the
  /// next one, as `on_ranks_failed`, or nothing if the run is to end: beyond
  /// `free_leaves` in a row.
  std::optional<duration> on_ranks_left();

  /// A report was stored: the next failure is a new one.
  void on_progress() noexcept {
    failures_in_a_row_ = 0;
    leaves_in_a_row_ = 0;
  }

  /// A group failed to start for *reason*. Returns how long to wait before the
  /// next start, or nothing if the run is to end.
  std::optional<duration> on_start_failed(const error& reason);

  /// A group runs: the next failed start waits `delay.first` again.
  void on_group_started() noexcept { failed_starts_in_a_row_ = 0; }

  /// An earlier driver of the run counted *x*.
  void count_on(const failure_counts& x) noexcept {
    rank_failures_ += x.ranks;
    start_failures_ += x.starts;
  }

  failure_counts counts() const noexcept {
    return {rank_failures_, start_failures_};
  }

  /// Failures of ranks since a report was stored.
  std::int64_t failures_in_a_row() const noexcept { return failures_in_a_row_; }

  /// Groups that have left since a report was stored.
  std::int64_t leaves_in_a_row() const noexcept { return leaves_in_a_row_; }

private:
  /// Before the next start, after *ends* in a row without a report.
  duration wait_after(std::int64_t ends) const;

  failure_config config_;
  std::int64_t rank_failures_ = 0;
  std::int64_t start_failures_ = 0;
  random_function random_;
  std::int64_t failures_in_a_row_ = 0;
  std::int64_t leaves_in_a_row_ = 0;
  int failed_starts_in_a_row_ = 0;
};

} // namespace troupe::internal
