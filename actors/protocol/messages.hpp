#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/kept_checkpoint.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/link_papers.hpp"
#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/store/attempt_start.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/runtime/values/run_control.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/runtime/values/run_status.hpp"

// One struct per message. Commands are verbs, facts are past events, answers
// are nouns. A message between driver, worker group and ranks names its
// attempt, and is refused or dropped in another one; `get_checkpoints` and
// `get_status` only read and name none. After each struct comes its wire
// format: its fields in order of declaration. Messages of the rendezvous store
// are in store_messages.hpp, those between worker group and host agents in
// host_messages.hpp, those to callbacks in callback_messages.hpp, what anyone
// asks of a run in control_messages.hpp.

namespace troupe::internal {

// -- driver and worker group --------------------------------------------------

/// Starts all ranks of attempt *attempt*.
struct start_attempt {
  std::uint64_t attempt = 0;
  std::optional<checkpoint> resume; ///< What it resumes from.
  std::uint64_t first_report = 0;   ///< Index of the attempt's first report.
};

template <class Inspector>
bool inspect(Inspector& f, start_attempt& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("resume", x.resume),
                            f.field("first_report", x.first_report));
}

/// Ends the ranks of *attempt*: asks them to leave their loops, kills the ones
/// that have not left after *grace_ms*.
struct stop_attempt {
  std::uint64_t attempt = 0;
  error reason;
  std::int64_t grace_ms = 0;
};

template <class Inspector>
bool inspect(Inspector& f, stop_attempt& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("reason", x.reason),
                            f.field("grace_ms", x.grace_ms));
}

/// Asks the ranks of *attempt* to leave their loops by *deadline_ms* (Unix
/// time): they learn of it with one of their next reports, all with the same. A
/// later one changes only the deadline.
struct preempt_attempt {
  std::uint64_t attempt = 0;
  std::string reason;
  std::int64_t deadline_ms = 0;
};

template <class Inspector>
bool inspect(Inspector& f, preempt_attempt& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("reason", x.reason),
                            f.field("deadline_ms", x.deadline_ms));
}

/// Every rank runs its loop.
struct attempt_started {
  std::uint64_t attempt = 0;
  int world_size = 0;
};

template <class Inspector>
bool inspect(Inspector& f, attempt_started& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("world_size", x.world_size));
}

/// Every rank has returned from its loop, or has left it because of
/// `stop_attempt`, and has ended.
struct attempt_ended {
  std::uint64_t attempt = 0;
  bool stopped = false;
  bool preempted = false; ///< All had learned of `preempt_attempt`.
  /// Why ranks have left for the next attempt; empty: they have not.
  std::string left_for;
};

template <class Inspector>
bool inspect(Inspector& f, attempt_ended& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("stopped", x.stopped),
    f.field("preempted", x.preempted), f.field("left_for", x.left_for));
}

/// At least one rank failed; every rank has ended.
struct attempt_failed {
  std::uint64_t attempt = 0;
  bool started = false; ///< Whether `attempt_started` came before.
  error reason;         ///< One sentence for all of it.
  std::map<int, rank_failure> ranks;
  bool is_final = false; ///< No other attempt would be better.
  /// Why that is no failure of the run, which continues; empty: it is one.
  std::string left_for;
};

template <class Inspector>
bool inspect(Inspector& f, attempt_failed& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("started", x.started),
    f.field("reason", x.reason), f.field("ranks", x.ranks),
    f.field("is_final", x.is_final), f.field("left_for", x.left_for));
}

/// A warning about the attempt, e.g. ranks that keep others waiting.
struct attempt_warning {
  std::uint64_t attempt = 0;
  std::string text;
  bool waits = false; ///< Ranks wait, until a warning says otherwise.
};

template <class Inspector>
bool inspect(Inspector& f, attempt_warning& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("text", x.text), f.field("waits", x.waits));
}

/// Rank 0 is further in its pass over a data loader, or has ended it.
struct epoch_advanced {
  std::uint64_t attempt = 0;
  std::optional<epoch_progress> progress;
};

template <class Inspector>
bool inspect(Inspector& f, epoch_advanced& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("progress", x.progress));
}

/// The report of every rank has arrived: store the batch. The driver forwards
/// batches with a checkpoint to the committer. Both answer `report_committed`.
struct commit_batch {
  std::uint64_t attempt = 0;
  report_batch batch;
};

template <class Inspector>
bool inspect(Inspector& f, commit_batch& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("batch", x.batch));
}

// -- host agent and rank
// --------------------------------------------------------

/// Where a rank finds the user's hooks.
struct hook_spec {
  std::optional<function_address> before_loop;
  std::optional<function_address> after_loop;
  std::optional<function_address> on_report;
};

template <class Inspector>
bool inspect(Inspector& f, hook_spec& x) {
  return f.object(x).fields(f.field("before_loop", x.before_loop),
                            f.field("after_loop", x.after_loop),
                            f.field("on_report", x.on_report));
}

/// What a rank needs to find its train loop: the function that calls the loop,
/// the loop, the loop's config as cereal wrote it, and its hooks.
struct loop_spec {
  function_address entry;
  function_address loop;
  std::string config;
  hook_spec hooks;
};

template <class Inspector>
bool inspect(Inspector& f, loop_spec& x) {
  return f.object(x).fields(f.field("entry", x.entry), f.field("loop", x.loop),
                            f.field("config", x.config),
                            f.field("hooks", x.hooks));
}

/// Runs the loop; the answer to `trainer_ready`.
struct start_loop {
  rank_facts facts;
  std::optional<checkpoint> resume;
  loop_spec loop;
  std::optional<link_papers> papers; ///< For the first rank of a host.
};

template <class Inspector>
bool inspect(Inspector& f, start_loop& x) {
  return f.object(x).fields(
    f.field("facts", x.facts), f.field("resume", x.resume),
    f.field("loop", x.loop), f.field("papers", x.papers));
}

/// A rank is up. Travels with the handle of its trainer.
struct trainer_ready {
  std::uint64_t attempt = 0;
  int rank = 0;
  int pid = 0;
  std::string host;
};

template <class Inspector>
bool inspect(Inspector& f, trainer_ready& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank), f.field("pid", x.pid),
                            f.field("host", x.host));
}

/// Leave the loop: the run is to stop (`ec::stopped`) or a peer has failed.
struct stop_loop {
  std::uint64_t attempt = 0;
  error reason;
};

template <class Inspector>
bool inspect(Inspector& f, stop_loop& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("reason", x.reason));
}

/// The loop of *rank* returned, or failed for *reason*.
struct loop_ended {
  std::uint64_t attempt = 0;
  int rank = 0;
  error reason;         ///< `ec::none`: it returned.
  bool stopped = false; ///< It left because it was asked to.
};

template <class Inspector>
bool inspect(Inspector& f, loop_ended& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("rank", x.rank),
    f.field("reason", x.reason), f.field("stopped", x.stopped));
}

/// Report of one rank; answered by `report_committed` once all are stored.
struct report {
  std::uint64_t attempt = 0;
  rank_report value;
  bool waits = true; ///< false: only while `max_reports_ahead` are under way.
};

template <class Inspector>
bool inspect(Inspector& f, report& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("value", x.value),
                            f.field("waits", x.waits));
}

/// Every rank is to leave its loop once its report *index* has returned.
struct stop_notice {
  std::uint64_t index = 0;
  std::string reason;
  std::int64_t deadline_ms = 0; ///< Unix time.
  stop_info::kind_type kind = stop_info::kind_type::preempted;
};

template <class Inspector>
bool inspect(Inspector& f, stop_notice& x) {
  return f.object(x).fields(
    f.field("index", x.index), f.field("reason", x.reason),
    f.field("deadline_ms", x.deadline_ms), f.field("kind", x.kind));
}

/// Report *index* of every rank is durable.
struct report_committed {
  std::uint64_t index = 0;
  std::optional<std::string> checkpoint; ///< Folder of its checkpoint.
  /// For ranks, once the run is preempted. From the driver, if the run ends
  /// with this report.
  std::optional<stop_notice> stop;
};

template <class Inspector>
bool inspect(Inspector& f, report_committed& x) {
  return f.object(x).fields(f.field("index", x.index),
                            f.field("checkpoint", x.checkpoint),
                            f.field("stop", x.stop));
}

/// *rank* waits until all of its reports are stored.
struct reports_awaited {
  std::uint64_t attempt = 0;
  int rank = 0;
};

template <class Inspector>
bool inspect(Inspector& f, reports_awaited& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank));
}

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

template <class Inspector>
bool inspect(Inspector& f, join_barrier& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("rank", x.rank),
    f.field("sequence", x.sequence), f.field("broadcast", x.broadcast),
    f.field("payload", x.payload), f.field("refusal", x.refusal));
}

/// Every rank has arrived; *payload* is rank 0's.
struct barrier_released {
  std::string payload;
};

template <class Inspector>
bool inspect(Inspector& f, barrier_released& x) {
  return f.object(x).fields(f.field("payload", x.payload));
}

/// An event that a rank's loop logged, for the journal. In order with the
/// reports of the same rank.
struct log_event {
  std::uint64_t attempt = 0;
  loop_event event;
};

template <class Inspector>
bool inspect(Inspector& f, log_event& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("event", x.event));
}

/// Asks for the committed checkpoints that were not evicted, oldest first, from
/// report index *first* on. Carries no attempt: it changes nothing.
struct get_checkpoints {
  std::uint64_t first = 0;
  std::string name; ///< Of the requested one; empty: all.
};

template <class Inspector>
bool inspect(Inspector& f, get_checkpoints& x) {
  return f.object(x).fields(f.field("first", x.first), f.field("name", x.name));
}

/// As many as fit a message of moderate size.
struct checkpoint_list {
  std::vector<kept_checkpoint> entries;
  bool more = false; ///< Ask again, from the index after the last one.
};

template <class Inspector>
bool inspect(Inspector& f, checkpoint_list& x) {
  return f.object(x).fields(f.field("entries", x.entries),
                            f.field("more", x.more));
}

// -- launcher, host agent and worker group

/// The process or thread of *rank* exists.
struct rank_launched {
  std::uint64_t attempt = 0;
  int rank = 0;
  int pid = 0;
};

template <class Inspector>
bool inspect(Inspector& f, rank_launched& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank), f.field("pid", x.pid));
}

/// The process or thread of *rank* has ended; for a process with its cause.
struct rank_exited {
  std::uint64_t attempt = 0;
  int rank = 0;
  process_exit cause;
  /// It had ended before the ranks of its host were to end. Known to its agent.
  bool ended_before = false;
};

template <class Inspector>
bool inspect(Inspector& f, rank_exited& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank), f.field("cause", x.cause),
                            f.field("ended_before", x.ended_before));
}

/// *rank* could not be launched.
struct rank_launch_failed {
  std::uint64_t attempt = 0;
  int rank = 0;
  error reason;
};

template <class Inspector>
bool inspect(Inspector& f, rank_launch_failed& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank),
                            f.field("reason", x.reason));
}

// -- driver and committer

/// Makes a new fencing number durable.
struct begin_attempt {};

template <class Inspector>
bool inspect(Inspector& f, begin_attempt& x) {
  return f.object(x).fields();
}

/// Stores how the run ended; answered without a value once that is durable.
struct finish_run {
  run_status_kind status = run_status_kind::finished;
  std::optional<run_error> reason;
};

template <class Inspector>
bool inspect(Inspector& f, finish_run& x) {
  return f.object(x).fields(f.field("status", x.status),
                            f.field("reason", x.reason));
}

// -- anyone and driver

/// Starts the run; sent once by the one that spawned the driver.
struct start_run {};

template <class Inspector>
bool inspect(Inspector& f, start_run& x) {
  return f.object(x).fields();
}

// -- from the run's store to the driver

/// The run cannot continue: its journal could not be made durable, or another
/// driver has taken it.
struct storage_lost {
  error reason;
};

template <class Inspector>
bool inspect(Inspector& f, storage_lost& x) {
  return f.object(x).fields(f.field("reason", x.reason));
}

} // namespace troupe::internal
