#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/config/stop_config.hpp"
#include "troupe/runtime/report/report.hpp"

namespace troupe::internal {

/// Decides by the reports of a run when it has trained enough.
class stop_judge {
public:
  explicit stop_judge(stop_config config = {})
    : config_(std::move(config)), seen_(config_.metrics.size()) {}

  /// Why the run ends with *x*, which came *elapsed* after its start; nothing
  /// if it continues.
  std::optional<std::string> judge(const report_batch& x,
                                   std::chrono::milliseconds elapsed);

  /// The same for a run that begins with *reports* reports.
  std::optional<std::string> judge(std::uint64_t reports) const;

  /// One sentence for each threshold whose metric was in no report as a number;
  /// none if there was no report.
  std::vector<std::string> complaints() const;

private:
  stop_config config_;
  std::vector<bool> seen_; ///< By threshold.
  std::optional<packed_metrics> last_;
};

} // namespace troupe::internal
