#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/config/stop_config.hpp"
#include "troupe/runtime/report/report.hpp"

namespace troupe::internal {

/// What earlier drivers of a run have decided.
struct earlier_stop {
  std::string reason; ///< Why it had trained enough; empty: it had not.
  /// The last ranks were ended, or failed: they may not have saved what they
  /// had.
  bool was_interrupted = false;
};

/// Decides when a run has trained enough: by its reports, by what else judges
/// them, or because someone asks for it.
///
/// The first reason counts, including that of an earlier driver of the run. The
/// caller stores it, so that a restart finishes the run.
class stop_judge {
public:
  /// Judges each report, too.
  using report_judge =
    std::function<std::optional<std::string>(const report_batch&)>;

  stop_judge() = default;
  explicit stop_judge(stop_config config, report_judge other = {},
                      earlier_stop before = {});

  // -- Each returns the reason if it was decided with this call.

  /// The run begins with *reports* reports.
  std::optional<std::string> begin(std::uint64_t reports);

  /// Report *x* came *elapsed* after the start.
  std::optional<std::string> judge(const report_batch& x,
                                   std::chrono::milliseconds elapsed);

  /// The run was asked to finish; empty *why*: without a reason.
  std::optional<std::string> finish(const std::string& why);

  /// Why the run has trained enough, without secrets; empty: it has not.
  const std::string& reason() const noexcept { return reason_; }

  /// Whether a run that begins has nothing left to do: it has trained enough,
  /// and everything is saved.
  bool is_done() const noexcept { return !reason_.empty() && !is_unsaved_; }

  /// One sentence for each threshold whose metric was in no report as a number;
  /// none if there was no report.
  std::vector<std::string> complaints() const;

private:
  std::optional<std::string> decide(std::optional<std::string> reason);
  /// The reason that report *x* gives.
  std::optional<std::string> reason_of(const report_batch& x,
                                       std::chrono::milliseconds elapsed);
  std::optional<std::string> reason_of(std::uint64_t reports) const;

  stop_config config_;
  report_judge other_;
  std::string reason_;
  bool is_unsaved_ = false;
  std::vector<bool> seen_; ///< By threshold.
  std::optional<packed_metrics> last_;
};

} // namespace troupe::internal
