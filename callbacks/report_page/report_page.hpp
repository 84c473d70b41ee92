#pragma once

#include <stop_token>
#include <string>

#include "troupe/callbacks/report_page/digest_reader.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// A run's page `report.html`: curves of its metrics, checkpoints and restarts,
/// config, environment, times of the ranks and their last log lines, in one
/// HTML file that needs no network.
///
/// A function of the run's folder, whether the run is going, has ended or is
/// damaged; the page says what it could not read. The next page costs little
/// more than what is new in the journal.
class report_page {
public:
  /// `ec::storage` if there is no folder *run_path* or no journal in it,
  /// `ec::invalid_argument` if it is not the folder of a run.
  static expected<report_page> open(const fs::path& run_path);

  /// The page as the folder is now; `ec::stopped` soon after *cancelled* was
  /// asked to stop. A few megabytes at most, however long the run.
  expected<std::string> render(const std::stop_token& cancelled = {});

  /// Renders and replaces `report.html` of the folder atomically.
  expected<void> write(const std::stop_token& cancelled = {});

private:
  explicit report_page(digest_reader journal) : journal_(std::move(journal)) {}

  digest_reader journal_;
};

/// The page of the run in *run_path*; see `report_page`.
expected<std::string> render_report_page(const fs::path& run_path);

} // namespace troupe::internal
