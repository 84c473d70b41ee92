#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/kept_checkpoint.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/link_credentials.hpp"
#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/store/attempt_start.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/runtime/values/run_control.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/runtime/values/run_status.hpp"

// One struct per message between driver, worker group, ranks and committer.
// After each struct comes its wire format: its fields in order of declaration.
// README.md says where other messages are, and which names its attempt.

namespace troupe::internal {

// -- driver and worker group --------------------------------------------------

/// Starts all ranks of attempt *attempt*.
struct start_attempt {
  std::uint64_t attempt = 0;
  std::optional<checkpoint> resume; ///< What it resumes from.
  std::uint64_t first_report = 0;   ///< Index of the attempt's first report.
};

TROUPE_INSPECT(start_attempt, attempt, resume, first_report)

/// Ends the ranks of *attempt*: asks them to leave their loops, kills the ones
/// that have not left after *grace_ms*.
struct stop_attempt {
  std::uint64_t attempt = 0;
  error reason;
  std::int64_t grace_ms = 0;
};

TROUPE_INSPECT(stop_attempt, attempt, reason, grace_ms)

/// Asks the ranks of *attempt* to leave their loops within *grace_ms*: they
/// learn of it with one of their next reports, all with the same. A later one
/// changes only the deadline.
struct preempt_attempt {
  std::uint64_t attempt = 0;
  std::string reason;
  std::int64_t grace_ms = 0;
};

TROUPE_INSPECT(preempt_attempt, attempt, reason, grace_ms)

/// Every rank runs its loop.
struct attempt_started {
  std::uint64_t attempt = 0;
  int world_size = 0;
};

TROUPE_INSPECT(attempt_started, attempt, world_size)

/// Every rank has ended, and none has failed.
struct attempt_ended {
  std::uint64_t attempt = 0;
  bool stopped = false;   ///< Not every loop had returned.
  bool preempted = false; ///< All had learned of `preempt_attempt`.
  /// Why ranks have left for the next attempt; empty: they have not.
  std::string left_for;
};

TROUPE_INSPECT(attempt_ended, attempt, stopped, preempted, left_for)

/// At least one rank failed; every rank has ended.
struct attempt_failed {
  std::uint64_t attempt = 0;
  bool started = false; ///< Whether `attempt_started` came before.
  error reason;         ///< One sentence for all ranks.
  std::map<int, rank_failure> ranks;
  bool is_final = false; ///< Another attempt would fail, too.
  /// Why that does not count as a failure of the run; empty: it does.
  std::string left_for;
};

TROUPE_INSPECT(attempt_failed, attempt, started, reason, ranks, is_final,
               left_for)

/// A warning about the attempt, e.g. ranks that keep others waiting.
struct attempt_warning {
  std::uint64_t attempt = 0;
  std::string text;
  bool waits = false; ///< Ranks wait, until a warning says otherwise.
};

TROUPE_INSPECT(attempt_warning, attempt, text, waits)

/// Rank 0 is further in its pass over a data loader, or has ended it.
struct epoch_advanced {
  std::uint64_t attempt = 0;
  std::optional<epoch_progress> progress;
};

TROUPE_INSPECT(epoch_advanced, attempt, progress)

/// The report of every rank has arrived: store the batch. The driver forwards
/// batches with a checkpoint to the committer. Both answer `report_committed`.
struct commit_batch {
  std::uint64_t attempt = 0;
  report_batch batch;
};

TROUPE_INSPECT(commit_batch, attempt, batch)

// -- host agent and rank ------------------------------------------------------

/// Where a rank finds the user's hooks.
struct hook_spec {
  std::optional<function_address> before_loop;
  std::optional<function_address> after_loop;
  std::optional<function_address> on_report;
};

TROUPE_INSPECT(hook_spec, before_loop, after_loop, on_report)

/// What a rank needs to find its train loop: the function that calls the loop,
/// the loop, the loop's config as cereal wrote it, and its hooks.
struct loop_spec {
  function_address entry;
  function_address loop;
  std::string config;
  hook_spec hooks;
};

TROUPE_INSPECT(loop_spec, entry, loop, config, hooks)

/// Runs the loop; the answer to `rank_ready`.
struct start_loop {
  rank_facts facts;
  std::optional<checkpoint> resume;
  loop_spec loop;
  /// For the first rank of a host.
  std::optional<link_credentials> credentials;
};

TROUPE_INSPECT(start_loop, facts, resume, loop, credentials)

/// A rank is up. Sent to the host agent with the handle of its trainer, then to
/// the worker group.
struct rank_ready {
  std::uint64_t attempt = 0;
  int rank = 0;
  int pid = 0;
  std::string host;
};

TROUPE_INSPECT(rank_ready, attempt, rank, pid, host)

/// Leave the loop: the run is to stop (`ec::stopped`) or a peer has failed.
struct stop_loop {
  std::uint64_t attempt = 0;
  error reason;
};

TROUPE_INSPECT(stop_loop, attempt, reason)

/// The loop of *rank* returned, or failed for *reason*.
struct loop_ended {
  std::uint64_t attempt = 0;
  int rank = 0;
  error reason;         ///< `ec::none`: it returned.
  bool stopped = false; ///< It left because it was asked to.
};

TROUPE_INSPECT(loop_ended, attempt, rank, reason, stopped)

/// Report of one rank; answered by `report_committed` once all are stored.
struct report {
  std::uint64_t attempt = 0;
  rank_report value;
  bool waits = true; ///< false: only while `max_reports_ahead` are under way.
};

TROUPE_INSPECT(report, attempt, value, waits)

/// Every rank is to leave its loop once its report *index* has returned.
struct stop_notice {
  std::uint64_t index = 0;
  std::string reason;
  /// From the worker group: by its own clock, so that it only names the
  /// deadline (`local_deadline`). From the host agent: Unix time of its host.
  std::int64_t deadline_ms = 0;
  stop_info::kind_type kind = stop_info::kind_type::preempted;
  /// Until the deadline when the worker group answered; `leave_plan::never_ms`:
  /// there is none.
  std::int64_t left_ms = 0;
};

TROUPE_INSPECT(stop_notice, index, reason, deadline_ms, kind, left_ms)

/// Report *index* of every rank is durable.
struct report_committed {
  std::uint64_t index = 0;
  std::optional<std::string> checkpoint; ///< Folder of its checkpoint.
  /// For ranks, once the run is preempted. From the driver, if the run ends
  /// with this report.
  std::optional<stop_notice> stop;
};

TROUPE_INSPECT(report_committed, index, checkpoint, stop)

/// *rank* waits until all of its reports are stored.
struct reports_awaited {
  std::uint64_t attempt = 0;
  int rank = 0;
};

TROUPE_INSPECT(reports_awaited, attempt, rank)

/// Rank waits at its collective *sequence*: a barrier, or a broadcast of rank
/// 0's *payload*.
struct join_barrier {
  std::uint64_t attempt = 0;
  int rank = 0;
  std::uint64_t sequence = 0;
  meeting_kind kind = meeting_kind::barrier;
  std::string payload;
  error refusal; ///< Why rank 0 has no payload: every rank gets this error.
};

TROUPE_INSPECT(join_barrier, attempt, rank, sequence, kind, payload, refusal)

/// Every rank has arrived; *payload* is rank 0's.
struct barrier_released {
  std::string payload;
};

TROUPE_INSPECT(barrier_released, payload)

/// An event that a rank's loop logged, for the journal. In order with the
/// reports of the same rank.
struct log_event {
  std::uint64_t attempt = 0;
  loop_event event;
};

TROUPE_INSPECT(log_event, attempt, event)

/// Asks for the committed checkpoints that were not evicted, oldest first, from
/// report index *first* on.
struct get_checkpoints {
  std::uint64_t first = 0;
  std::string name; ///< Of the requested one; empty: all.
};

TROUPE_INSPECT(get_checkpoints, first, name)

/// As many as fit a message of moderate size.
struct checkpoint_list {
  std::vector<kept_checkpoint> entries;
  bool more = false; ///< Ask again, from the index after the last one.
};

TROUPE_INSPECT(checkpoint_list, entries, more)

// -- launcher, host agent and worker group ------------------------------------

/// The process or thread of *rank* exists.
struct rank_launched {
  std::uint64_t attempt = 0;
  int rank = 0;
  int pid = 0;
};

TROUPE_INSPECT(rank_launched, attempt, rank, pid)

/// The process or thread of *rank* has ended; for a process with its cause.
struct rank_exited {
  std::uint64_t attempt = 0;
  int rank = 0;
  process_exit cause;
  /// It had ended before the ranks of its host were to end. Known to its agent.
  bool ended_before = false;
};

TROUPE_INSPECT(rank_exited, attempt, rank, cause, ended_before)

/// *rank* could not be launched.
struct rank_launch_failed {
  std::uint64_t attempt = 0;
  int rank = 0;
  error reason;
};

TROUPE_INSPECT(rank_launch_failed, attempt, rank, reason)

// -- driver and committer -----------------------------------------------------

/// Makes a new fencing number durable.
struct begin_attempt {};

TROUPE_INSPECT(begin_attempt)

/// Stores how the run ended; answered without a value once that is durable.
struct end_run {
  run_status_kind status = run_status_kind::finished;
  std::optional<run_error> reason;
};

TROUPE_INSPECT(end_run, status, reason)

// -- anyone and driver --------------------------------------------------------

/// Starts the run; sent once by the one that spawned the driver.
struct start_run {};

TROUPE_INSPECT(start_run)

// -- from the run's store or handle to the driver -----------------------------

/// Ends the run as errored: its journal could not be made durable, another
/// driver has taken it, or ranks could not reach it.
struct fail_run {
  error reason;
};

TROUPE_INSPECT(fail_run, reason)

} // namespace troupe::internal
