#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <caf/actor_addr.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/group_store.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/worker_group_args.hpp"
#include "troupe/runtime/hosts/host_roster.hpp"
#include "troupe/runtime/hosts/resize_judge.hpp"
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

  // -- hosts that join
  caf::result<host_accepted> welcome(agent_hello& x,
                                     const caf::strong_actor_ptr& agent);
  caf::result<void> take_in(const host_checked& x);
  /// The agent was refused, but may ask again.
  void keep_waiting(host_agent_actor agent);
  /// Monitors *agent*, once however often it says hello.
  void watch(const host_agent_actor& agent);
  /// A place may be free: agents that were refused ask again.
  void offer_places();
  caf::result<void> take_in(const host_tick& x);
  /// Looks once a second which hosts are silent, whom to launch again, and
  /// whether the attempt that waits for hosts may start.
  void watch_hosts();
  void note_launch(const agent_launched& x);
  void note_launcher(const launcher_said& x);
  void note_launcher(const launcher_ended& x);
  void carry_out(const host_decisions& decisions);
  void drop_agent(const fence_agent& x);
  void show(const host_suspected& x);
  void show(const host_answers& x);
  void show(const host_given_up& x);
  void show(const host_left_out& x);
  void lose(const host_lost& x);
  /// A host is about to leave: its ranks' last checkpoints come before.
  void note_host(const host_notice& x);
  /// Lets all ranks leave after one of their reports, within *grace*.
  void let_leave(std::string why, std::chrono::milliseconds grace);
  /// Hosts have come or gone: how many ranks the next attempt could have.
  void note_room();
  void give_up_gathering(const too_few_hosts& x);
  /// The agent of another host is gone.
  void agent_gone(std::size_t host, const caf::error& reason);
  /// Returns whether one of them has failed for that.
  bool lose_ranks_of(std::size_t host, const std::string& why);
  void note(std::string text) const {
    if (args.note)
      args.note(std::move(text));
  }
  void journal(std::string_view kind, metrics fields) const {
    if (args.journal)
      args.journal(kind, std::move(fields));
  }
  std::uint64_t token() const { return args.token ? args.token() : 0; }
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
  /// An agent is gone, and its ranks with it. The group ends with the only one.
  void agent_lost(const caf::down_msg& x);
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
  /// Invalid if there is none.
  host_agent_actor agent_at(std::size_t host) const;
  host_agent_actor agent_of(int rank) const {
    return agent_at(hosts.host_with(rank));
  }
  std::vector<int> gpus_of(int rank) const;
  /// The agents of hosts with ranks, that of the driver's host last. A spare
  /// host that is frozen delays no answer.
  std::vector<host_agent_actor> agents_of_ranks() const;
  /// Sends *x* to them. On every report's way: makes no list of them.
  template <class Message>
  void tell_hosts(Message x) {
    for (auto& [host, agent] : *agents)
      if (host > 0 && hosts.at(host).ranks > 0)
        send(self, agent, x);
    if (hosts.at(0).ranks > 0)
      send(self, agent_at(0), std::move(x));
  }

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
  /// Whether *rank* is on another host than the driver's.
  bool is_elsewhere(int rank) const { return hosts.host_with(rank) != 0; }
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
  host_roster hosts;
  driver_actor driver; ///< Of the last attempt.
  attempt_slot<attempt_state> attempt;
  std::optional<start_attempt> gathering; ///< It waits for hosts.
  bool has_begun = false;                 ///< An attempt.
  bool has_come_up = false; ///< An attempt: the program can start ranks.
  resize_judge resizes;
  /// By host, where there is one. They end with the group; outlives the actor.
  std::shared_ptr<std::map<std::size_t, host_agent_actor>> agents =
    std::make_shared<std::map<std::size_t, host_agent_actor>>();
  std::vector<host_agent_actor> agents_without_place;
  bool leaving = false;
  caf::error leaving_for; ///< `unfinished`; `caf::none`: the run finished.
  std::set<caf::actor_addr> watched; ///< Agents of other hosts.
  /// Agents that were noted, with what was odd about their hosts.
  std::map<caf::actor_addr, std::set<std::string>> introduced;
};

/// Behavior of the WORKER GROUP actor; *hosts* as the run begins. An exit
/// message ends its ranks first. The agents of its hosts end with it.
worker_group_actor::behavior_type worker_group(worker_group_state::pointer self,
                                               worker_group_args args,
                                               host_roster hosts);

} // namespace troupe::internal
