#pragma once

#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"

namespace troupe::internal {

/// A sweep as its page shows it.
struct sweep_facts {
  std::string name;
  std::string status; ///< As that of a run.
  /// Trials under way may have what they have reported so far.
  sweep_content content;
  std::vector<std::string> complaints; ///< What could not be shown.
  /// Names of trials whose own page lies beside this one, at
  /// `<trial>/report.html`.
  std::vector<std::string> pages;
};

/// All that the page of a sweep shows, as one JSON object, which
/// `page/sweep.js` draws:
///
///   name, status, error, complaints, begin  as in `page_data`
///   sweep     {metric, order: "min" or "max", searcher, planned, best}:
///             `planned` and `best`, an index of `trials`, may be missing
///   axes      [{name, kind, log, low, high, values}]: of a `number` or an
///             `integer` the bounds, of a `choice` its values
///   trials    [{name, status, values, score, last, reports, seconds, reason,
///             page}]: `values` of the axes, null where one is missing; `score`
///             and `last`, the metric of the last report, may be missing
std::string sweep_data(const sweep_facts& x);

/// The page, in one HTML file that needs no network.
std::string sweep_page(const sweep_facts& x);

/// Writes `compare.html` into the folder *path* of a sweep that has ended.
/// Errors are also those of `read_sweep`.
expected<void> write_sweep_page(const fs::path& path);

} // namespace troupe::internal
