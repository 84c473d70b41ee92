#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/sweep/halving.hpp"
#include "troupe/runtime/sweep/search_space.hpp"
#include "troupe/runtime/sweep/searcher.hpp"
#include "troupe/runtime/sweep/sweep_result.hpp"
#include "troupe/runtime/sweep/trial.hpp"
#include "troupe/trainers/data_parallel_trainer.hpp"

namespace troupe {

class sweep_handle;

/// How a sweep chooses, compares and ends its trials.
struct sweep_options {
  /// Metric of rank 0 that trials are compared by, `a/b` for nested ones.
  std::string metric;
  score_order order = score_order::min; ///< Which value of it is better.
  /// How many trials there are. Unset: as many as the searcher chooses.
  std::optional<int> trials;
  /// Who chooses their params. Unset: `random_search()`.
  std::shared_ptr<troupe::searcher> searcher;
  /// Ends trials that are worse than others. Unset: none end early.
  std::optional<halving_options> halving;
  /// Most trials at once. Unset: as many as this host has cores for, one core
  /// for each rank that claims none. Never more than it has GPUs for.
  std::optional<int> max_concurrent;
  /// How many trials may fail before one has finished. Then the sweep ends: the
  /// program is probably wrong, not the params. Those of earlier starts do not
  /// count. Unset: no limit.
  std::optional<int> max_failed_trials = 3;
  /// Whether trials that failed in earlier starts run again, each from its last
  /// checkpoint: after a mistake in the program, or a full disk.
  bool retry_failed = false;
  /// Changes the config of a trial's run before it begins; called on the thread
  /// of `fit()`, or that of the `sweep_handle`. For callbacks of its own, which
  /// serve one run at a time; trackers are copied for each trial before that.
  /// Name and storage path are the sweep's.
  std::function<void(const trial&, run_config&)> prepare;
};

/// Runs one trainer with many configs, to find the best one.
///
/// Each trial is a run of its own, below the folder of the sweep, which has the
/// storage path and the name of the trainer's `run_config`. A sweep that was
/// interrupted is resumed by the same program: trials that have ended are not
/// repeated, the others resume from their last checkpoints. Without a name,
/// each start is a new sweep.
class sweep {
public:
  /// The params of *space* are fields of the config that *trainer* was given,
  /// which must have `TROUPE_FIELDS`; the other fields keep their values.
  sweep(const data_parallel_trainer& trainer, search_space space,
        sweep_options options)
    : request_(request_of(trainer)), space_(std::move(space)),
      options_(std::move(options)) {}

  /// Runs all trials that are left and waits for them. Signals end it as they
  /// end `fit()` of a trainer. Never throws: the result has the error, and
  /// every trial that has begun.
  sweep_result fit() const noexcept;

  /// Starts the sweep in *system*, which must load CAF's middleman and outlive
  /// the handle. Opens its folder, and returns before the first trial begins.
  /// Include "troupe/actors.hpp" to call it.
  expected<sweep_handle> start(caf::actor_system& system) const;

private:
  internal::run_request request_;
  search_space space_;
  sweep_options options_;
};

} // namespace troupe
