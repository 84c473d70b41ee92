#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "troupe/callbacks/report_page/digest_reader.hpp"
#include "troupe/callbacks/report_page/run_facts.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// More cannot be told apart by color and dashes.
inline constexpr std::size_t max_compared_runs = 32;

/// Several runs side by side.
struct comparison {
  struct run {
    std::string label; ///< The folder's name; its path if another has it, too.
    fs::path path;
    run_facts facts;
    std::shared_ptr<digest_reader> journal; ///< nullptr: it has none.

    const journal_digest& digest() const;
  };

  /// One setting, with its value in each run; nothing: the run has none.
  struct setting {
    std::string name;
    std::vector<std::optional<std::string>> values;
    bool differs = false;
  };

  std::vector<run> runs;
  std::vector<setting> config;
  std::vector<setting> environment; ///< Host, user, program and versions.
};

/// The best value of the metric that scores a run's checkpoints, over all
/// ranks.
struct best_value {
  std::string metric;
  score_order order = score_order::max;
  double value = 0;
};

/// Nothing if no metric scores, or none of its values is finite.
std::optional<best_value> best_of(const comparison::run& x);

/// Reads the runs in *paths*. What a run lacks is among the complaints of its
/// facts. `ec::invalid_argument` if a path is not the folder of a run.
expected<comparison> compare_runs(std::span<const fs::path> paths);

/// The same of *runs* with `path` alone, or also with `journal`, of which only
/// what is new is read.
expected<comparison> compare_runs(std::vector<comparison::run> runs);

/// All that a page about several runs shows, as one JSON object, which
/// the script of `page/` draws:
///
///   name, complaints  as in `page_data`
///   runs          [{name, path, status, error, reports, world, attempts,
///                 checkpoints, begin, seconds, best: [metric, "max" or "min",
///                 value]}]: `begin` in milliseconds since 1970; it, `seconds`
///                 and `best` are missing if they are not known
///   groups, axes  the curves, see `append_compared_charts`
///   config, environment  [[name, [value of each run or null], differs]]
std::string comparison_data(const comparison& x);

/// The page, in one HTML file that needs no network.
std::string comparison_page(const comparison& x);

} // namespace troupe::internal
