#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/store/saved_run.hpp"

namespace troupe::internal {

/// The last lines that one rank printed.
struct log_tail {
  std::string file;   ///< Name within `logs/`.
  std::string text;   ///< As a terminal would show it; may be no UTF-8.
  bool whole = false; ///< Whether nothing was left out.
};

/// Most checkpoints that a report page lists with their metrics.
inline constexpr std::size_t max_checkpoint_rows = 50;

/// What a report page shows of a run's folder beside its journal.
struct run_facts {
  using name_values = std::vector<std::pair<std::string, std::string>>;

  std::string name;
  name_values config;      ///< Nested names with slashes, as `optimizer/lr`.
  name_values environment; ///< Who runs the run, where, with what.
  /// Without a score, only the newest checkpoints have metrics of many names.
  std::optional<saved_run> state;
  std::vector<log_tail> logs;          ///< Ordered by rank.
  std::vector<std::string> complaints; ///< About files that were not readable.
};

/// Reads what there is in *run_path*. A file that is damaged or missing leaves
/// a complaint.
run_facts read_run_facts(const fs::path& run_path);

/// The same without logs, and without metrics of checkpoints but those that a
/// score ranks.
run_facts read_main_facts(const fs::path& run_path);

} // namespace troupe::internal
