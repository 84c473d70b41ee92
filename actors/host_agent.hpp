#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/rank_launcher.hpp"
#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/runtime/report/call_batch.hpp"
#include "troupe/runtime/run/attempt_slot.hpp"
#include "troupe/runtime/run/leave_plan.hpp"

namespace troupe::internal {

struct host_agent_args {
  std::shared_ptr<rank_launcher> launcher;
  /// Asks for a place in the run; must not wait. Empty: it has one.
  std::function<void()> ask_for_place;
};

/// What the HOST AGENT remembers between messages.
struct host_agent_state {
  static inline constexpr auto name = "host-agent";

  using pointer = host_agent_actor::stateful_pointer<host_agent_state>;

  /// A rank that waits for the commit of its report.
  struct pending_report {
    int rank;
    caf::typed_response_promise<report_committed> promise;
  };

  using barrier_promise = caf::typed_response_promise<barrier_released>;

  /// A rank of this host.
  struct rank_slot {
    trainer_actor trainer; ///< Invalid before it is up and once it is lost.
    std::optional<barrier_promise> barrier;
    bool loop_over = false;
    bool gone = false;
    /// Learns from the answer to a call that it is to end, which may come
    /// before `stop_loop`.
    bool was_in_call = false;
    bool ended_before = false; ///< As in `rank_exited`.
  };

  /// The one attempt under way. Its vectors are by local rank.
  struct attempt_state : numbered_attempt {
    attempt_state(start_ranks x, shared_segment memory);

    /// The slot of *rank*; nullptr if it is not of this host.
    rank_slot* find(int rank);
    /// Position of *rank*, which is of this host.
    int local(int rank) const;

    start_ranks order;
    shared_segment segment;
    std::vector<rank_slot> ranks;
    call_batch batch;
    std::vector<host_call> held; ///< Not passed on yet.
    std::size_t held_bytes = 0;
    std::multimap<std::uint64_t, pending_report> reports; ///< By index.
    local_deadline deadline; ///< By when its ranks are to leave.
  };

  // -- the worker group asks
  caf::result<void> start(start_ranks& x, worker_group_actor from);
  void end(const end_ranks& x);
  void kill(const kill_rank& x);
  void over(const attempt_over& x);
  void answer(reports_answered& x);
  void answer(const barrier_answered& x);
  void refuse(const call_refused& x);
  host_snapshots look(const look_at_ranks& x);
  stacks_shown ask_for_stacks(const show_stacks& x);

  // -- a rank asks
  caf::result<start_loop> welcome(rank_ready& x, trainer_actor trainer);
  /// What *rank* is to run.
  start_loop start_for(int rank) const;
  caf::result<report_committed> add(report& x);
  void awaited(const reports_awaited& x);
  caf::result<barrier_released> join(join_barrier& x);
  caf::result<void> end_loop(loop_ended& x);
  /// Lets the worker group answer *x*, which travels with *more*.
  template <class Answer, class Message, class... More>
  caf::result<Answer> pass_on(Message& x, More&... more);

  // -- what became of a rank
  void launched(const rank_launched& x);
  void exited(rank_exited& x);
  void launch_failed(rank_launch_failed& x);
  void trainer_lost(const caf::actor_addr& who);

  void launch(int rank);
  /// What ranks show in shared memory alone.
  std::vector<rank_snapshot> shown() const;
  /// The same and how their processes are, which costs system calls per rank.
  std::vector<rank_snapshot> snapshots() const;
  /// Holds a call of *rank* back, or passes it on with all before it.
  template <class Call>
  void call(int rank, Call what, bool is_due);
  void pass_calls_on();
  /// Sends *fact* to the worker group, after the calls before it.
  template <class Fact>
  void tell(Fact fact) {
    pass_calls_on();
    send(self, group, std::move(fact));
  }
  void answer_all(const error& reason);

  pointer self = nullptr;
  host_agent_args args;
  worker_group_actor group; ///< Of the last attempt.
  attempt_slot<attempt_state> attempt;
  /// Ranks of the last attempt; outlives the actor.
  std::shared_ptr<std::vector<int>> started =
    std::make_shared<std::vector<int>>();
};

/// Behavior of the HOST AGENT actor. If it, or the worker group, dies of a
/// defect, its ranks are killed.
host_agent_actor::behavior_type host_agent(host_agent_state::pointer self,
                                           host_agent_args args);

} // namespace troupe::internal
