#pragma once

#include <caf/actor.hpp>
#include <caf/actor_control_block.hpp>
#include <caf/result.hpp>
#include <caf/typed_actor.hpp>

#include "troupe/actors/protocol/callback_messages.hpp"
#include "troupe/actors/protocol/control_messages.hpp"
#include "troupe/actors/protocol/host_messages.hpp"
#include "troupe/actors/protocol/mailbox_messages.hpp"
#include "troupe/actors/protocol/messages.hpp"
#include "troupe/actors/protocol/store_messages.hpp"
#include "troupe/actors/protocol/sweep_messages.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// The TRAINER actor: one per rank, beside the thread that runs the loop.
using trainer_actor = caf::typed_actor<
  // The host agent ends the loop: the run is to stop or a peer has failed.
  caf::result<void>(stop_loop)>;

/// The DRIVER actor: owns the run. To others it is a `run_control_actor`.
using driver_actor = caf::typed_actor<
  // Whoever spawned the driver starts the run.
  caf::result<void>(start_run),
  // Anyone aborts it; ranks get time to leave their loops.
  caf::result<void>(abort_run),
  // Anyone preempts it: ranks get time for a last checkpoint.
  caf::result<void>(preempt_run),
  // Anyone ends it as finished, with its next report.
  caf::result<void>(finish_run),
  // Anyone changes how many calls to callbacks may be without an answer.
  caf::result<void>(resize_callback_queue),
  // Anyone asks how the run is; answers at once from memory.
  caf::result<run_status>(get_status),
  // Anyone lets an actor follow the run.
  caf::result<run_status>(follow_run, run_observer_actor),
  // Anyone lets an actor follow which ranks take messages.
  caf::result<ranks_changed>(follow_ranks, rank_observer_actor),
  // The worker group reports how an attempt starts, runs and ends.
  caf::result<void>(attempt_started), caf::result<void>(attempt_ended),
  caf::result<void>(attempt_failed), caf::result<void>(attempt_warning),
  caf::result<void>(epoch_advanced),
  // The worker group has a batch; answers once it is durable.
  caf::result<report_committed>(commit_batch),
  // A rank logs; agent and group pass it on. Answers once it is in the
  // journal.
  caf::result<void>(log_event),
  // A rank asks what the run has kept; agent and group pass it on.
  caf::result<checkpoint_list>(get_checkpoints),
  // A rank takes messages from now on; agent and group pass it on. Answers with
  // what others send them to.
  caf::result<caf::actor>(open_mailbox, postbox_actor),
  // The run's store, which looks once a second, or its handle ends the run.
  caf::result<void>(fail_run)>;

/// The WORKER GROUP actor: owns the ranks of one attempt, through the agents of
/// their hosts.
using worker_group_actor = caf::typed_actor<
  // The driver starts an attempt; facts about it follow, to that driver.
  caf::result<void>(start_attempt, driver_actor),
  // The driver ends the attempt; `attempt_ended` or `attempt_failed` follows.
  caf::result<void>(stop_attempt),
  // The driver asks the ranks to leave; they learn of it with their next
  // report.
  caf::result<void>(preempt_attempt),
  // The process of another host's agent asks for a place; its agent travels
  // with the message. An error says why there is none.
  caf::result<host_accepted>(agent_hello, caf::strong_actor_ptr),
  // It has checked its host; answers once the agent counts.
  caf::result<void>(host_checked),
  // It is alive; an error if it does not count any more.
  caf::result<void>(host_tick),
  // Its host is about to leave.
  caf::result<void>(host_notice),
  // It has closed the connection of a rank.
  caf::result<void>(host_warning),
  // The launcher of another host's agent has begun, said something, or ended.
  caf::result<void>(agent_launched), caf::result<void>(launcher_said),
  caf::result<void>(launcher_ended),
  // An agent reports the starts and ends of its ranks, and their calls.
  caf::result<void>(rank_launched), caf::result<void>(rank_launch_failed),
  caf::result<void>(host_calls), caf::result<void>(rank_loop_ended),
  caf::result<void>(rank_disconnected), caf::result<void>(rank_exited),
  // An agent has a rank that is up; answers once it may begin its loop, after
  // the driver has learned that the attempt runs.
  caf::result<void>(rank_ready),
  // A rank logs; passed on to the driver.
  caf::result<void>(log_event),
  // A rank asks what the run has kept; passed on to the driver.
  caf::result<checkpoint_list>(get_checkpoints),
  // A rank takes messages; passed on to the driver.
  caf::result<caf::actor>(open_mailbox, postbox_actor),
  // The rendezvous store. Gets and waits answer once their keys exist.
  caf::result<void>(store_set), caf::result<std::string>(store_get),
  caf::result<std::int64_t>(store_add), caf::result<bool>(store_check),
  caf::result<void>(store_wait), caf::result<bool>(store_erase),
  caf::result<std::int64_t>(store_size),
  caf::result<std::string>(store_compare_set)>;

/// The HOST AGENT actor: owns what belongs to one host, and is all that the
/// ranks there see of the run.
using host_agent_actor = caf::typed_actor<
  // The group starts the ranks of this host. Answers once they are being
  // launched; facts about them follow, to that group.
  caf::result<void>(start_ranks, worker_group_actor),
  // The group ends them, ...
  caf::result<void>(end_ranks), caf::result<void>(kill_rank),
  caf::result<void>(attempt_over),
  // ... answers what they have called, ...
  caf::result<void>(reports_answered), caf::result<void>(barrier_answered),
  caf::result<void>(call_refused),
  // ... and asks how they are.
  caf::result<host_snapshots>(look_at_ranks),
  caf::result<stacks_shown>(show_stacks),
  // The group may have a place for this host, which it had refused one.
  caf::result<void>(ask_for_place),
  // A rank is up; answers with what it is to run.
  caf::result<start_loop>(rank_ready, trainer_actor),
  // A rank reports; answers once the report of every rank is stored.
  caf::result<report_committed>(report),
  // A rank waits for what it has reported without a barrier.
  caf::result<void>(reports_awaited),
  // A rank waits for all others; answers once every rank is here.
  caf::result<barrier_released>(join_barrier),
  // A rank's loop is over; answers at once, so that the rank can go.
  caf::result<void>(loop_ended),
  // A rank's calls that are passed on to the group as they are: events,
  // checkpoints, its mailbox, the rendezvous store.
  caf::result<void>(log_event), caf::result<checkpoint_list>(get_checkpoints),
  caf::result<caf::actor>(open_mailbox, postbox_actor),
  caf::result<void>(store_set), caf::result<std::string>(store_get),
  caf::result<std::int64_t>(store_add), caf::result<bool>(store_check),
  caf::result<void>(store_wait), caf::result<bool>(store_erase),
  caf::result<std::int64_t>(store_size),
  caf::result<std::string>(store_compare_set),
  // The launcher reports starts and ends of processes or threads.
  caf::result<void>(rank_launched), caf::result<void>(rank_exited),
  caf::result<void>(rank_launch_failed)>;

/// The COMMITTER actor: does the driver's slow writes on a thread of its own.
using committer_actor = caf::typed_actor<
  // Answers once the new fencing number is durable.
  caf::result<attempt_start>(begin_attempt),
  // Answers once the checkpoint is durable, registered and visible.
  caf::result<report_committed>(commit_batch),
  // Answers once the end of the run is durable; its result is on the monitor.
  caf::result<void>(end_run),
  // Answers with the registered checkpoints, after all commits before it.
  caf::result<checkpoint_list>(get_checkpoints)>;

} // namespace troupe::internal
