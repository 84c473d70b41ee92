#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/run/rank_failure.hpp"
#include "troupe/runtime/run/result.hpp"
#include "troupe/runtime/run/run_context.hpp"

namespace troupe {

/// What users hang on a run. Derive, override what you need, and put it into
/// `run_config::callbacks`.
///
/// Called in the process that called `fit()`, on a thread of their own, one at
/// a time and in order: a slow one never delays ranks until the queue is full.
/// What a callback throws is logged and journalled; with
/// `callback_errors::abort` it ends the run.
class user_callback {
public:
  virtual ~user_callback() = default;

  /// What the run calls it, in errors and in `run_status::callbacks`; read once
  /// when the run starts. By default the name of its class.
  virtual std::string name() const;

  /// The run begins, before any rank starts; `attempt` and `world_size` of the
  /// context are those of the first attempt to come.
  virtual void before_run(const run_context&) {}

  /// Every rank has delivered the report; *values* are ordered by rank. What
  /// they reported is stored: the checkpoint, if one was made, can be read
  /// until all callbacks have come back from this report, even if retention
  /// lets it go meanwhile. Two exceptions: the callbacks were given up after
  /// `callback_limit`, or a later checkpoint was given the same name.
  ///
  /// Once per report and in order. If the driver dies, the next one of the run
  /// begins with the reports that no callback had come back from: those may
  /// come twice, and without a checkpoint that has been evicted since.
  virtual void after_report(const run_context&,
                            const std::vector<metrics>& /*values*/,
                            const std::optional<checkpoint>&) {}

  /// Ranks failed, before it is decided whether the run goes on.
  virtual void after_exception(const run_context&,
                               const std::map<int, rank_failure>&) {}

  /// The run is over, however it ended; the last call of all.
  virtual void after_run(const run_context&, const result&) {}
};

} // namespace troupe
