#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/inspect_as.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/sweep/trial.hpp"

namespace troupe {

/// How a sweep is.
struct sweep_status {
  std::string metric;         ///< That trials are compared by.
  std::vector<trial> running; ///< By index; `seconds` so far.
  std::size_t ended = 0;      ///< Failed ones included.
  std::size_t failed = 0;
  std::optional<std::size_t> trials; ///< How many there will be, if known.
  std::optional<trial> best;         ///< Of those that have ended.
  double elapsed_s = 0;              ///< Seconds since this start.
};

/// What a sweep found.
struct sweep_result {
  std::vector<trial> trials; ///< By index, those of earlier starts included.
  fs::path path;             ///< Folder of the sweep; empty if none began.
  /// Why the sweep did not come to its end. Starting it again resumes it.
  std::optional<troupe::error> error;
  /// As `result::stop_requested`.
  bool stop_requested = false;
  score_order order = score_order::min; ///< Of the sweep's options.

  /// The trial with the best score, the first one on a tie. An error if none
  /// has a score.
  expected<trial> best() const;

  /// The result of the run of *x*, with its checkpoints.
  expected<result> result_of(const trial& x) const {
    return result::from_path(path / x.name);
  }
};

template <class Inspector>
bool inspect(Inspector& f, sweep_result& x) {
  return f.object(x).fields(
    f.field("trials", x.trials), internal::path_field(f, "path", x.path),
    f.field("error", x.error), f.field("stop_requested", x.stop_requested),
    f.field("order", x.order));
}

} // namespace troupe
