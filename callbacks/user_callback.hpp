#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe {

/// Follows a run. Derive, override what you need, and put it into
/// `run_config::callbacks`.
///
/// The process that called `fit()` calls it on a separate thread, one hook at a
/// time and in order: a slow callback delays ranks only when the queue is full.
/// An exception is logged and journaled; with `callback_errors::abort` it ends
/// the run. Each hook can end the run through `run_context::control`, and gets
/// a folder for files of its own from `run_context::folder`.
class user_callback {
public:
  virtual ~user_callback() = default;

  /// Its name in errors and in `run_status::callbacks`; read once when the run
  /// starts. By default the name of the class.
  virtual std::string name() const;

  /// The run begins; no rank has started yet. `attempt` and `world_size` of the
  /// context are those of the first attempt.
  virtual void before_run(const run_context&) {}

  /// Every rank has delivered the report; *values* are ordered by rank. The
  /// report is stored: its checkpoint, if any, can be read until all callbacks
  /// have returned from this report, even if retention evicts it meanwhile. Two
  /// exceptions: the callbacks were given up after `callback_limit`, or a later
  /// checkpoint got the same name.
  ///
  /// Called once per report, in order. After a crash of the driver, the next
  /// one replays the reports whose callbacks had not finished: those may come
  /// twice, and without a checkpoint that was evicted since.
  virtual void after_report(const run_context&,
                            const std::vector<metrics>& /*values*/,
                            const std::optional<checkpoint>&) {}

  /// Ranks failed; whether the run continues is not decided yet.
  virtual void after_exception(const run_context&,
                               const std::map<int, rank_failure>&) {}

  /// The run went from one state to another. Not called for a state that a
  /// driver begins with.
  virtual void after_state_change(const run_context&, run_state /*from*/,
                                  run_state /*to*/) {}

  /// Every rank of an attempt runs its loop.
  virtual void after_group_start(const run_context&) {}

  /// Every rank of an attempt is gone, also of one that did not come up.
  /// *reason*: `ec::none` if all loops returned, `ec::stopped` if they were
  /// asked to leave.
  virtual void after_group_end(const run_context&, const error& /*reason*/) {}

  /// The run has ended, in whatever way; the last call.
  virtual void after_run(const run_context&, const result&) {}
};

} // namespace troupe
