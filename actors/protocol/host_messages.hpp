#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "troupe/actors/protocol/messages.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/hosts/agent_facts.hpp"
#include "troupe/runtime/process/rank_snapshot.hpp"

// Between the worker group and the agents of its hosts. README.md says which
// name their attempt.

namespace troupe::internal {

// -- from the worker group ----------------------------------------------------

/// Starts the ranks of this host. Sent with the worker group's handle, to which
/// facts are reported.
struct start_ranks {
  std::uint64_t attempt = 0;
  std::vector<rank_facts> ranks; ///< By local rank.
  std::optional<checkpoint> resume;
  loop_spec loop;
  bool holds_calls = true; ///< As in `call_batch`.
  std::uint64_t token = 0; ///< Of the attempt's `ranks_ticket`.
  std::map<std::string, std::string> environment; ///< Of ranks; has secrets.
  std::optional<link_credentials> credentials; ///< Unset: the run has one host.
};

TROUPE_INSPECT(start_ranks, attempt, ranks, resume, loop, holds_calls, token,
               environment, credentials)

/// Asks the ranks of this host to leave their loops: aborts their shared
/// memory, answers what they wait for with *reason*, and takes no more calls.
struct end_ranks {
  std::uint64_t attempt = 0;
  error reason;
};

TROUPE_INSPECT(end_ranks, attempt, reason)

/// Kills the process of *rank*; a thread cannot be killed.
struct kill_rank {
  std::uint64_t attempt = 0;
  int rank = 0;
};

TROUPE_INSPECT(kill_rank, attempt, rank)

/// Every rank of the attempt is gone or given up.
struct attempt_over {
  std::uint64_t attempt = 0;
};

TROUPE_INSPECT(attempt_over, attempt)

/// The answer to report `answer.index` of every rank.
struct reports_answered {
  std::uint64_t attempt = 0;
  report_committed answer;
  error reason; ///< Why the report was not committed; `ec::none`: it was.
};

TROUPE_INSPECT(reports_answered, attempt, answer, reason)

/// The answer to the barrier or broadcast that all ranks have joined.
struct barrier_answered {
  std::uint64_t attempt = 0;
  barrier_released answer;
  error reason; ///< Why rank 0 broadcast nothing; `ec::none`: it did.
};

TROUPE_INSPECT(barrier_answered, attempt, answer, reason)

/// The answer to a call of *rank* that no rank may make.
struct call_refused {
  std::uint64_t attempt = 0;
  int rank = 0;
  std::optional<std::uint64_t> report; ///< Unset: its barrier or broadcast.
  error reason;
};

TROUPE_INSPECT(call_refused, attempt, rank, report, reason)

/// Asks what the ranks of this host show. Their calls so far are passed on
/// before the answer.
struct look_at_ranks {
  std::uint64_t attempt = 0;
  std::vector<int> examined; ///< Ranks whose vitals are looked up, too.
};

TROUPE_INSPECT(look_at_ranks, attempt, examined)

/// What the ranks of this host show; the answer to `look_at_ranks`.
struct host_snapshots {
  std::uint64_t attempt = 0;
  std::vector<rank_snapshot> ranks;
};

TROUPE_INSPECT(host_snapshots, attempt, ranks)

/// Asks *ranks* to write the stacks of their threads.
struct show_stacks {
  std::uint64_t attempt = 0;
  std::vector<int> ranks;
};

TROUPE_INSPECT(show_stacks, attempt, ranks)

/// *ranks* write the stacks of their threads.
struct stacks_shown {
  std::uint64_t attempt = 0;
  std::vector<int> ranks;
};

TROUPE_INSPECT(stacks_shown, attempt, ranks)

// -- how a host joins ---------------------------------------------------------

/// The agent of another host is there, and asks for a place in the run. Travels
/// with the agent.
struct agent_hello {
  agent_facts facts;
};

TROUPE_INSPECT(agent_hello, facts)

/// What an agent needs to start ranks on its host.
struct host_accepted {
  std::uint32_t node_rank = 0;
  std::string run_path; ///< Folder of the run, on storage that all hosts share.
  std::uint64_t token = 0;          ///< In a file there, as in `start_ranks`.
  std::string network_interface;    ///< `scaling_config::network_interface`.
  std::int64_t lost_after_ms = 0;   ///< `scaling_config::lost_after`.
  std::vector<int> preempt_signals; ///< `run_config::preempt_signals`.
};

TROUPE_INSPECT(host_accepted, node_rank, run_path, token, network_interface,
               lost_after_ms, preempt_signals)

/// Asks an agent that was refused a place to ask for one again: one may be
/// free.
struct ask_for_place {};

TROUPE_INSPECT(ask_for_place)

/// The agent has checked its host with what it got, and waits for ranks unless
/// it has found a problem.
struct host_checked {
  std::uint32_t node_rank = 0;
  std::uint64_t incarnation = 0;
  error problem;       ///< `ec::none`: it can have ranks.
  std::string address; ///< On the interface that was asked for, if one was.
};

TROUPE_INSPECT(host_checked, node_rank, incarnation, problem, address)

/// The agent of another host is alive. Sent once a second, but not before the
/// last one was answered: a driver that was stopped finds only one.
struct host_tick {
  std::uint32_t node_rank = 0;
  std::uint64_t incarnation = 0;
};

TROUPE_INSPECT(host_tick, node_rank, incarnation)

/// The host of this agent is about to leave: it is preempted, for example.
struct host_notice {
  std::uint32_t node_rank = 0;
  std::uint64_t incarnation = 0;
  std::string reason;
  std::int64_t grace_ms = -1; ///< Until it is gone; -1: unknown.
};

TROUPE_INSPECT(host_notice, node_rank, incarnation, reason, grace_ms)

/// What people should know about the host of this agent: it has closed the
/// connection of a rank, for example.
struct host_warning {
  std::uint32_t node_rank = 0;
  std::uint64_t incarnation = 0;
  std::string text;
};

TROUPE_INSPECT(host_warning, node_rank, incarnation, text)

/// The launcher of an agent has passed the ticket on. From this process.
struct agent_launched {
  std::uint64_t launch = 0; ///< As in `launch_agent`.
};

TROUPE_INSPECT(agent_launched, launch)

/// The launcher has said this, and its agent has not come for a while. From
/// this process.
struct launcher_said {
  std::uint64_t launch = 0;
  std::string words;
};

TROUPE_INSPECT(launcher_said, launch, words)

/// The launcher has ended, or could not start. From this process.
struct launcher_ended {
  std::uint64_t launch = 0;
  std::string reason;
  bool may_help = true; ///< Whether another launch may help.
};

TROUPE_INSPECT(launcher_ended, launch, reason, may_help)

// -- to the worker group ------------------------------------------------------

/// What a rank called, when, and for how long it had waited in collectives by
/// then (`rank_snapshot::waited`).
struct host_call {
  moment at;
  std::int64_t waited = 0;
  std::variant<report, join_barrier, reports_awaited> what;
};

TROUPE_INSPECT(host_call, at, waited, what)

/// Calls of the ranks of a host, in order of arrival.
struct host_calls {
  std::uint64_t attempt = 0;
  std::vector<host_call> calls;
};

TROUPE_INSPECT(host_calls, attempt, calls)

/// The loop of a rank ended; *ranks*: what all of its host show in memory.
struct rank_loop_ended {
  std::uint64_t attempt = 0;
  loop_ended loop;
  /// It was in a call that was answered by `end_ranks`: it may have learned of
  /// that before `stop_loop`.
  bool was_in_call = false;
  std::vector<rank_snapshot> ranks;
};

TROUPE_INSPECT(rank_loop_ended, attempt, loop, was_in_call, ranks)

/// The connection to *rank*, which had not said goodbye, broke.
struct rank_disconnected {
  std::uint64_t attempt = 0;
  int rank = 0;
};

TROUPE_INSPECT(rank_disconnected, attempt, rank)

} // namespace troupe::internal
