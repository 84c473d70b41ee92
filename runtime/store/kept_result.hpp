#pragma once

#include <optional>
#include <vector>

#include "troupe/runtime/checkpoint/kept_checkpoint.hpp"
#include "troupe/runtime/metrics/packed_metrics.hpp"
#include "troupe/runtime/store/result.hpp"

namespace troupe::internal {

struct saved_run;

/// The result of a run on its way to the user. All copies share the metrics:
/// as maps they take several times the memory, so they are unpacked once, for
/// the one that reads them.
struct kept_result {
  result head; ///< Without its metrics and best checkpoints.
  packed_metrics metrics;
  std::vector<kept_checkpoint> best_checkpoints;

  result unpacked() const;

  /// The same, if there is memory for it. Else the best checkpoints have no
  /// metrics, and `unsent` says so; if even that is too much, only status,
  /// attempts and the error's code are left.
  result unpacked_if_possible() const noexcept;
};

/// The result of the run in *path* with state *x*, whose rank 0 reported
/// *last_metrics* last.
kept_result make_result(const saved_run& x, const fs::path& path,
                        packed_metrics last_metrics);

/// *x* as the result of a run that ended with *status* for *reason* (unset: it
/// finished), which *problem* kept from being stored.
kept_result unsaved_result(kept_result x, run_status_kind status,
                           std::optional<run_error> reason,
                           const error& problem);

} // namespace troupe::internal
