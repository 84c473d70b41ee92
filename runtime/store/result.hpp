#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/inspect_as.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe {

namespace internal {

/// How a value of type *T* that a loop returned is read: `return_value.hpp` of
/// `trainers/`.
template <class T>
struct returned_value;

} // namespace internal

/// A run's reports, oldest first.
struct run_history : std::vector<journaled_batch> {
  /// What is missing: one sentence for each damaged line of the journal, which
  /// was skipped. `journal_damaged` in the journal says so, too.
  std::vector<std::string> damaged;
};

/// The result of a run: the outcome, the last metrics, the checkpoints.
struct result {
  run_status_kind status = run_status_kind::running;
  /// What rank 0 reported last, with or without a checkpoint; empty if it never
  /// reported.
  troupe::metrics metrics;
  /// The latest committed checkpoint.
  std::optional<troupe::checkpoint> checkpoint;
  /// At most `checkpoint_config::num_to_keep`, ascending by score: the last one
  /// is the best.
  std::vector<reported_checkpoint> best_checkpoints;
  fs::path path; ///< Folder of the run; empty if none began.
  /// Why the run did not finish; unset for a finished one.
  std::optional<run_error> error;
  /// Whether a signal asked for the run's end before its outcome was fixed. A
  /// finished run was done before it could leave; a program with more to do,
  /// such as another run, should leave now. Only `fit()` sets this.
  bool stop_requested = false;
  /// Why a finished run was ended before its loops returned by themselves, in
  /// the words of who asked for it: a loop, `run_config::stop`, the handle, a
  /// message or `troupe stop --finish`. Else empty.
  std::string stop_reason;
  std::uint64_t attempts = 0; ///< So far; each restart of the ranks is one.
  /// One sentence for each tracker, `metrics.csv` and `report.html` included,
  /// that at the end had not taken all, or not uploaded it: the next start or
  /// `troupe sync` sends the rest. And one for each callback that was given up:
  /// the next start, if the run has not finished, calls it for the rest. And
  /// one if there was no memory for the metrics of this result.
  std::vector<std::string> unsent;

  /// The best of `best_checkpoints` by *metric*; ties go to the newer. An error
  /// lists the known names if no checkpoint has such a number.
  expected<reported_checkpoint> best_checkpoint(const std::string& metric,
                                                score_order order) const;

  /// The best of `best_checkpoints` by the run's own score
  /// (`checkpoint_config`), without one the newest; an error if there is none.
  expected<reported_checkpoint> best_checkpoint() const;

  /// What the loop of *rank* returned in the last attempt, in a program with
  /// `troupe/train.hpp`: of any type that `train_state` takes, the one that the
  /// loop has. An error that names the file if it returned nothing, as a loop
  /// that was ended does, or another type. Kept in the run's folder.
  template <class T>
  expected<T> return_value(int rank = 0) const {
    return internal::returned_value<T>::read(path, attempts, rank);
  }

  /// One row per report batch, oldest first, read from the journal. An error
  /// if no run began.
  expected<run_history> metrics_history() const;

  /// This result; throws `run_failed` if the run has an error.
  const result& value_or_throw() const&;
  result value_or_throw() &&;

  /// The result of the run in folder *path*, which may still be running.
  /// Distinct sentences for a folder that is missing, that is not a run, and
  /// whose state is missing or corrupt.
  static expected<result> from_path(const fs::path& path);
};

/// What `after_run` carries of a result; the rest is filled in by `fit()`.
template <class Inspector>
bool inspect(Inspector& f, result& x) {
  return f.object(x).fields(
    f.field("status", x.status), f.field("metrics", x.metrics),
    f.field("checkpoint", x.checkpoint),
    f.field("best_checkpoints", x.best_checkpoints),
    internal::path_field(f, "path", x.path), f.field("error", x.error),
    f.field("stop_reason", x.stop_reason), f.field("attempts", x.attempts));
}

namespace internal {

/// The end of the sentence about a stopped or preempted run *name*: how to
/// resume it.
std::string resume_hint(const std::string& name);

/// The result of a run that failed for *reason* before it had a folder.
result failed_result(error reason);

} // namespace internal

} // namespace troupe
