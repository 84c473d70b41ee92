#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/runtime/values/run_status.hpp"

// One struct per message. Commands are verbs, facts are past events, answers
// are nouns. Every message between driver, worker group and trainer names its
// attempt; one of another attempt is refused or dropped.

namespace troupe {

// -- driver and worker group --------------------------------------------------

/// Starts all ranks of attempt *attempt*.
struct start_attempt {
  std::uint64_t attempt = 0;
  std::optional<std::string>
    resume;                       ///< Folder of the checkpoint to go on from.
  std::uint64_t first_report = 0; ///< Index of the attempt's first report.
};

/// Ends the ranks of *attempt*: asks them to leave their loops, kills the ones
/// that have not left after *grace_ms*.
struct stop_attempt {
  std::uint64_t attempt = 0;
  error reason;
  std::int64_t grace_ms = 0;
};

/// Asks the ranks of *attempt* to leave their loops by *deadline_ms* (Unix
/// time): they hear of it with one of their next reports, all with the same. A
/// later one changes no more than the deadline.
struct preempt_attempt {
  std::uint64_t attempt = 0;
  std::string reason;
  std::int64_t deadline_ms = 0;
};

/// Every rank runs its loop.
struct attempt_started {
  std::uint64_t attempt = 0;
  int world_size = 0;
};

/// Every rank has returned from its loop, or has left it because of
/// `stop_attempt`, and is gone.
struct attempt_ended {
  std::uint64_t attempt = 0;
  bool stopped = false;
  bool preempted = false; ///< All had heard of `preempt_attempt`.
};

/// At least one rank failed; every rank is gone.
struct attempt_failed {
  std::uint64_t attempt = 0;
  bool started = false; ///< Whether `attempt_started` came before.
  error reason;         ///< One sentence for all of it.
  std::map<int, rank_failure> ranks;
};

/// Something about the attempt that people should know, e.g. ranks that let
/// the others wait.
struct attempt_warning {
  std::uint64_t attempt = 0;
  std::string text;
  bool waits = false; ///< Ranks wait, until a warning says otherwise.
};

/// The report of every rank is there: store it.
struct commit_batch {
  std::uint64_t attempt = 0;
  report_batch batch;
};

/// The batch is durable.
struct batch_committed {
  std::uint64_t attempt = 0;
  std::uint64_t index = 0;
  std::optional<std::string> checkpoint; ///< Folder of its checkpoint.
};

// -- worker group and trainer -------------------------------------------------

/// Where a rank finds the user's hooks.
struct hook_spec {
  std::optional<function_address> before_loop;
  std::optional<function_address> after_loop;
  std::optional<function_address> on_report;
};

/// What a rank needs to find its train loop: the function that calls the loop,
/// the loop, the loop's config as cereal wrote it, and its hooks.
struct loop_spec {
  function_address entry;
  function_address loop;
  std::string config;
  hook_spec hooks;
};

/// Runs the loop; the answer to `trainer_ready`.
struct start_loop {
  rank_facts facts;
  std::optional<std::string> resume;
  loop_spec loop;
};

/// A rank is up. Travels with the handle of its trainer.
struct trainer_ready {
  std::uint64_t attempt = 0;
  int rank = 0;
  int pid = 0;
  std::string host;
};

/// Leave the loop: the run is to stop (`ec::stopped`) or a peer has failed.
struct stop_loop {
  std::uint64_t attempt = 0;
  error reason;
};

/// The loop of *rank* returned, or failed for *reason*.
struct loop_ended {
  std::uint64_t attempt = 0;
  int rank = 0;
  error reason;         ///< `ec::none`: it returned.
  bool stopped = false; ///< It left because it was told to.
};

/// Report of one rank; answered by `report_committed` once all are stored.
struct report {
  std::uint64_t attempt = 0;
  rank_report value;
  bool waits = true; ///< false: only while `max_reports_ahead` are under way.
};

/// Every rank is to leave its loop once its report *index* has returned.
struct stop_notice {
  std::uint64_t index = 0;
  std::string reason;
  std::int64_t deadline_ms = 0; ///< Unix time.
};

struct report_committed {
  std::uint64_t index = 0;
  std::optional<std::string> checkpoint;
  std::optional<stop_notice> stop; ///< Set once the run is preempted.
};

/// *rank* waits until all that it has reported is stored.
struct reports_awaited {
  std::uint64_t attempt = 0;
  int rank = 0;
};

/// Rank waits at its collective *sequence*: a barrier, or a broadcast of rank
/// 0's *payload*.
struct join_barrier {
  std::uint64_t attempt = 0;
  int rank = 0;
  std::uint64_t sequence = 0;
  bool broadcast = false;
  std::string payload;
  error refusal; ///< Why rank 0 has no payload: every rank gets this error.
};

/// Every rank is here; *payload* is rank 0's.
struct barrier_released {
  std::string payload;
};

/// What a rank's loop logged, for the journal. In order with the reports of the
/// same rank.
struct log_event {
  std::uint64_t attempt = 0;
  loop_event event;
};

/// Asks for the committed checkpoints that were not evicted, oldest first, from
/// report index *first* on.
struct get_checkpoints {
  std::uint64_t first = 0;
  std::string name; ///< Of the only one that is asked for; empty: all.
};

/// One entry of `checkpoint_list`.
struct checkpoint_entry {
  std::string path;
  metrics values;
  std::uint64_t index = 0;
  std::uint64_t attempt = 0;
};

/// As many as fit a message of moderate size.
struct checkpoint_list {
  std::vector<checkpoint_entry> entries;
  bool more = false; ///< Ask again, from the index after the last one.
};

// -- rendezvous store: trainer and worker group

struct store_set {
  std::uint64_t attempt = 0;
  std::string key;
  std::string value;
};

/// Answered once *key* exists.
struct store_get {
  std::uint64_t attempt = 0;
  std::string key;
};

struct store_add {
  std::uint64_t attempt = 0;
  std::string key;
  std::int64_t amount = 0;
};

/// Whether all *keys* exist now.
struct store_check {
  std::uint64_t attempt = 0;
  std::vector<std::string> keys;
};

/// Answered once all *keys* exist.
struct store_wait {
  std::uint64_t attempt = 0;
  std::vector<std::string> keys;
};

struct store_erase {
  std::uint64_t attempt = 0;
  std::string key;
};

struct store_size {
  std::uint64_t attempt = 0;
};

struct store_compare_set {
  std::uint64_t attempt = 0;
  std::string key;
  std::string expected_value;
  std::string desired;
};

// -- launcher and worker group

/// The process or thread of *rank* exists.
struct rank_launched {
  std::uint64_t attempt = 0;
  int rank = 0;
  int pid = 0;
};

/// The process or thread of *rank* is gone; for a process with its cause.
struct rank_exited {
  std::uint64_t attempt = 0;
  int rank = 0;
  process_exit cause;
};

/// *rank* could not be launched.
struct rank_launch_failed {
  std::uint64_t attempt = 0;
  int rank = 0;
  error reason;
};

// -- driver and committer

/// Makes a new fencing number durable.
struct begin_attempt {};

/// The answer: the number, and where the attempt goes on from.
struct attempt_begun {
  std::uint64_t attempt = 0;
  std::uint64_t first_report = 0;
  std::optional<std::string> resume;
};

/// Notes how the run ended; answered by nothing once that is durable.
struct finish_run {
  run_status_kind status = run_status_kind::finished;
  std::optional<run_error> reason;
};

/// Commits the checkpoint of *batch*, answered by `batch_committed`.
struct commit_checkpoint {
  std::uint64_t attempt = 0;
  report_batch batch;
};

// -- driver and user callback

/// The run begins; attempt and world size are those of the first attempt to
/// come. The only message with the whole context: keep what you need of it.
struct before_run {
  run_context run;
};

/// Every rank has delivered report `index`. Sent in order of index, exactly
/// once in a life of the driver.
struct after_report {
  std::uint64_t index = 0;
  std::uint64_t attempt = 0;
  std::vector<metrics> values; ///< One entry per rank, ordered by rank.
  std::optional<std::string> checkpoint;
};

/// Ranks failed; sent before the driver acts on it.
struct after_exception {
  std::uint64_t attempt = 0;
  std::map<int, rank_failure> ranks;
};

/// The run is over, however it ended.
struct after_run {
  result outcome;
};

/// A callback message was handled. An actor of the user's fills in no more than
/// `failures`; what the run makes of them is the policy of its config, and the
/// time is what the run waited for the answer.
struct callback_done {
  double seconds = 0; ///< What the callbacks took.
  bool abort = false; ///< Whether the run is to end for `failures`.
  std::vector<error> failures;
  std::vector<callback_time> times; ///< One entry per callback, in order.
  /// Callbacks without which the run continues: they were not called.
  std::vector<std::string> skipped;
};

// -- anyone and driver

/// Starts the run; sent once by whoever spawned the driver.
struct start_run {};

/// Ends the run in good order.
struct stop_run {
  std::string reason; ///< Empty: that it was asked to.
};

struct get_status {};

/// Gives the ranks *grace_ms* (negative: as long as the run's config says) to
/// leave their loops, and ends the run.
struct preempt_run {
  std::string reason;
  std::int64_t grace_ms = -1;
};

// -- from the run's store to the driver

/// The run cannot go on: its journal could not be made durable, or another
/// driver has taken it.
struct storage_lost {
  error reason;
};

} // namespace troupe
