#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/group_hosts.hpp"
#include "troupe/actors/group_store.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/worker_group_args.hpp"
#include "troupe/runtime/hosts/host_roster.hpp"
#include "troupe/runtime/report/attempt_monitor.hpp"
#include "troupe/runtime/report/rank_meetings.hpp"
#include "troupe/runtime/run/attempt_slot.hpp"
#include "troupe/runtime/run/attempt_tracker.hpp"
#include "troupe/runtime/run/cause_search.hpp"
#include "troupe/runtime/run/leave_plan.hpp"
#include "troupe/runtime/run/loss_excuses.hpp"

namespace troupe::internal {

/// What the WORKER GROUP remembers between messages.
struct worker_group_state {
  static inline constexpr auto name = "worker-group";

  using pointer = worker_group_actor::stateful_pointer<worker_group_state>;
  using clock = std::chrono::steady_clock;

  /// The one attempt under way.
  struct attempt_state : numbered_attempt {
    /// One entry of *have_gpus* per rank.
    attempt_state(worker_group_actor::pointer self, const start_attempt& x,
                  const group_plan& plan, std::vector<bool> have_gpus);

    int world_size() const noexcept { return tracker.world_size(); }

    std::uint64_t first_report;
    std::optional<checkpoint> resume;
    attempt_tracker tracker;
    rank_meetings meetings;
    group_store store;
    attempt_monitor monitor;
    bool limit_timer = false; ///< A timer for `report_timeout` is set.
    leave_plan leaves;
    loss_excuses excuses;
    std::map<int, clock::time_point> exits; ///< Of ranks' processes.
    cause_search causes;
    bool started = false;
    clock::time_point begun; ///< When its hosts were asked to start ranks.
    /// When its ranks were to end: at once if one was over a limit.
    std::optional<clock::time_point> end_ordered;
  };

  void set_up(pointer own, worker_group_args given, host_roster roster);
  void start(const start_attempt& x, driver_actor from);
  /// Starts it on *chosen* hosts, which an elastic run shares its ranks among.
  void begin(const start_attempt& x, const std::vector<std::size_t>& chosen);

  /// Too few hosts have come.
  void give_up_gathering(const too_few_hosts& x);
  /// The ranks of a host are lost for *why*. Returns whether one of them has
  /// failed for that.
  bool lose(const host_lost& x, const std::string& why);
  /// A host is about to leave: its ranks' last checkpoints come before.
  void note_host(const host_notice& x);
  /// Lets all ranks leave after one of their reports, within *grace*.
  void let_leave(std::string why, std::chrono::milliseconds grace);
  /// The actor's clock, by which all deadlines are kept.
  std::int64_t now_ms() const {
    auto now = self->clock().now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  }
  void stop(const stop_attempt& x);
  void preempt(const preempt_attempt& x);
  caf::result<void> ready(rank_ready& x);
  void take(host_calls& x);
  void end_loop(rank_loop_ended& x);
  void launched(const rank_launched& x);
  void exited(const rank_exited& x);
  void launch_failed(const rank_launch_failed& x);
  void disconnected(const rank_disconnected& x);
  /// The same for the ranks alone.
  bool lose_ranks_of(std::size_t host, const std::string& why);
  /// Counts *rank* as failed unless it is gone, or ends by order. Returns
  /// whether it does.
  bool lose(int rank, std::string why);
  /// The loop of *rank* is over: kills what is still there of it after a while.
  void watch_exit(int rank);
  /// Ends the ranks, if there are any, and then the actor and its agents. The
  /// agents get *why* if it says that the run did not finish (`unfinished`).
  void leave(const caf::error& why);

  void start_on(std::size_t host);
  rank_facts facts_of(std::size_t host, int rank) const;
  std::vector<int> gpus_of(int rank) const;
  void add(host_call& call, report& x);
  void join(host_call& call, join_barrier& x);
  void commit(report_batch batch);
  void answered(reports_answered x);
  /// Ends the attempt if ranks wait for each other in different calls.
  void on_misuse(call_refused x);
  void check_calls();
  void end_for(const rank_mismatch& mismatch);
  void release(barrier_release x);
  /// What the answer to report *index* says about leaving.
  std::optional<stop_notice> notice_for(std::uint64_t index,
                                        bool has_checkpoint);

  /// Something may have failed: does what follows.
  void on_failure();
  void carry_out(const cause_search::step& x);
  /// Ends every rank: asks them, and kills what is there after *grace*.
  void end_all(const error& reason, std::chrono::milliseconds grace);
  void kill_ranks();
  /// Kills the process of *rank*, and gives it up if that takes too long.
  void kill(int rank);
  std::chrono::milliseconds kill_limit(int rank) const;
  void check_over();
  attempt_ended how_it_ended() const;
  attempt_failed how_it_failed();
  std::vector<loss_excuses::failed_rank> failed_ranks() const;
  /// The next attempts do without hosts on which ranks could not start, or on
  /// which loops (*have_begun*) fail that work elsewhere, if they can. Why that
  /// does not count as a failure; empty: it does.
  std::string leave_hosts_out(bool have_begun);

  /// Calls *f* after *limit* if the attempt is still this one. If the driver
  /// stood still meanwhile, ranks have *limit* once more (*again*).
  void after(std::chrono::milliseconds limit, std::function<void()> f,
             bool again = true);
  /// Ends the attempt if ranks are not up in time.
  void watch_start();
  /// Looks at the ranks at the monitor's interval for as long as they run.
  void watch_ranks();
  /// Looks at them at the moment at which the earliest wait is over its limit.
  void watch_limit();
  /// Looks at the ranks, judges their waits, and then calls *next* unless they
  /// are to end.
  void check_waits(std::function<void()> next);
  void judge_waits();
  /// Asks *ranks* for their stacks, then calls *f* with those that write them.
  void show_stacks_of(const std::vector<int>& ranks,
                      std::function<void(const std::vector<int>&)> f);
  void act_on(const hang_verdict& verdict, const std::vector<int>& shown);
  /// Asks the hosts with ranks for snapshots of them, with the vitals of
  /// *examined*. Once they have answered, or have not for a while, calls *f* if
  /// the attempt is still this one.
  void look(const std::vector<int>& examined, std::function<void()> f);

  pointer self = nullptr;
  worker_group_args args;
  std::optional<group_hosts> hosts; ///< Set once the actor runs.
  driver_actor driver;              ///< Of the last attempt.
  attempt_slot<attempt_state> attempt;
  std::optional<start_attempt> gathering; ///< It waits for hosts.
  bool has_begun = false;                 ///< An attempt.
  bool has_come_up = false; ///< An attempt: the program can start ranks.
  bool leaving = false;
  caf::error leaving_for; ///< `unfinished`; `caf::none`: the run finished.
};

/// Behavior of the WORKER GROUP actor; *hosts* as the run begins. An exit
/// message ends its ranks first. The agents of its hosts end with it.
worker_group_actor::behavior_type worker_group(worker_group_state::pointer self,
                                               worker_group_args args,
                                               host_roster hosts);

} // namespace troupe::internal
