#include "troupe/actors/worker_group.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

namespace {

/// The group learns of calls that its agents hold a second later. A shorter
/// limit on waits leaves no time for that.
constexpr auto least_limit = std::chrono::seconds{2};

/// What *rank* of *host* learns about itself.
rank_facts facts_of(const group_attempt& attempt, const group_plan& plan,
                    const host_roster& roster, std::size_t host, int rank) {
  auto& its = roster.at(host);
  rank_facts x;
  x.run_name = plan.run_name;
  x.run_id = plan.run_id;
  x.run_path = plan.run_path;
  x.run_inode = plan.run_inode;
  x.attempt = attempt.number;
  x.rank = rank;
  x.world_size = attempt.world_size();
  x.local_rank = rank - its.first_rank;
  x.local_world_size = its.ranks;
  x.node_rank = roster.node_rank(host);
  if (roster.is_open()) {
    x.host = its.name;
    x.host_address = its.address;
    x.lost_after_ms = roster.lost_after().count();
  }
  x.in_process = plan.in_process;
  x.gpus = plan.gpus_of(host, static_cast<std::size_t>(x.local_rank));
  x.first_report = attempt.first_report;
  return x;
}

/// By rank, whether it has a GPU.
std::vector<bool> have_gpus(const group_plan& plan, const host_roster& roster) {
  std::vector<bool> result;
  for (std::size_t host = 0; host < roster.all().size(); ++host)
    for (int local = 0; local < roster.at(host).ranks; ++local)
      result.push_back(
        !plan.gpus_of(host, static_cast<std::size_t>(local)).empty());
  return result;
}

/// What the store of the attempt of *x* answers, or that the attempt is over.
template <class Answer, class Message>
Answer ask_store(worker_group_state& state, Message& x,
                 Answer (group_store::*answer)(Message&)) {
  if (auto a = state.attempt.current(x.attempt))
    return (a->store.*answer)(x);
  return to_caf(state.attempt.too_late(x.attempt));
}

} // namespace

// -- start of an attempt

void worker_group_state::start(const start_attempt& x, driver_actor from) {
  driver = std::move(from);
  attempt.reset();
  gathering = x;
  // After the first attempt, the run continues with the hosts that are left.
  hosts->gather(has_begun);
  if (gathering)
    hosts->note_missing();
  hosts->offer_places(); // Now there is a token.
}

void worker_group_state::begin(const start_attempt& x,
                               const std::vector<std::size_t>& chosen) {
  has_begun = true;
  hosts->begin_attempt(chosen);
  auto& roster = hosts->roster();
  attempt.begin(x.attempt, self, x, args.plan, have_gpus(args.plan, roster));
  attempt->begun = now();
  for (std::size_t i = 0; i < roster.all().size(); ++i)
    if (hosts->has_ranks(i))
      start_on(i);
  watch_start();
}

void worker_group_state::give_up(const too_few_hosts& x) {
  if (!gathering)
    return;
  attempt_failed failed{gathering->attempt};
  failed.reason = x.reason;
  failed.is_final = true;
  gathering.reset();
  tell_driver(std::move(failed));
}

void worker_group_state::start_on(std::size_t host) {
  auto limit = args.plan.report_timeout;
  start_ranks order{attempt->number,
                    {},
                    attempt->resume,
                    args.plan.loop,
                    !limit || *limit >= least_limit,
                    hosts->token(),
                    args.plan.environment,
                    args.plan.credentials};
  auto& roster = hosts->roster();
  auto& its = roster.at(host);
  auto first = its.first_rank;
  auto end = first + its.ranks;
  for (int rank = first; rank < end; ++rank)
    order.ranks.push_back(facts_of(*attempt, args.plan, roster, host, rank));
  auto failed = [this, first, end,
                 number = attempt->number](const caf::error& why) {
    if (!is_ours(why))
      return; // The agent is gone, which the group learns next.
    for (int rank = first; rank < end; ++rank)
      ending.launch_failed({number, rank, from_caf(why)});
  };
  request(self, hosts->agent_at(host), caf::infinite, std::move(order),
          worker_group_actor{self})
    .then([] {}, failed);
}

void worker_group_state::watch_start() {
  after(args.plan.start_timeout, [this] {
    if (attempt->started || attempt->tracker.end_ordered())
      return;
    auto limit = duration_text(args.plan.start_timeout);
    for (auto rank : attempt->tracker.not_ready())
      attempt->tracker.timed_out(
        rank, attempt->tracker.pid(rank) == 0
                ? concat("was not started within ", limit,
                         ": its spawner did not answer")
                : concat("was not up ", limit, " after its launch"));
    ending.on_failure();
  });
}

void worker_group_state::launched(const rank_launched& x) {
  auto a = attempt.current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  a->tracker.launched(x.rank, x.pid);
  if (a->tracker.end_ordered())
    ending.kill(x.rank);
}

caf::result<void> worker_group_state::ready(rank_ready& x) {
  auto open = attempt.open(x.attempt);
  if (!open)
    return to_caf(open.error());
  auto a = *open;
  a->tracker.launched(x.rank, x.pid);
  a->tracker.ready(x.rank, std::move(x.host));
  if (a->started || !a->tracker.all_ready())
    return caf::unit;
  a->started = has_come_up = true;
  tell_driver(attempt_started{a->number, a->world_size()});
  a->monitor.begin(args.now());
  waits.watch_ranks();
  return caf::unit;
}

void worker_group_state::stop(const stop_attempt& x) {
  gathering.reset();
  ending.stop(x);
}

void worker_group_state::preempt(const preempt_attempt& x) {
  if (auto a = attempt.current(x.attempt))
    a->leaves.preempt(x.reason, now_ms() + x.grace_ms);
}

// -- hosts that leave

void worker_group_state::note_host(const host_notice& x) {
  auto& roster = hosts->roster();
  if (!roster.has(x.node_rank, x.incarnation))
    return;
  auto why =
    concat("host ", roster.name(x.node_rank), " is about to leave: ", x.reason);
  hosts->note(why);
  if (args.leaves_as_one && !roster.at(x.node_rank).is_guest) {
    if (driver)
      tell_driver(preempt_run{std::move(why), x.grace_ms});
    return;
  }
  auto grace = x.grace_ms < 0 ? args.plan.host_grace
                              : std::chrono::milliseconds{x.grace_ms};
  // Ranks of the host may be those of an agent that is lost.
  auto serves = attempt && roster.at(x.node_rank).serves();
  hosts->drain(x.node_rank, x.incarnation, grace);
  if (!serves)
    return;
  attempt->excuses.leaves(x.node_rank, why);
  if (has_loops(x.node_rank))
    let_leave(std::move(why), grace);
}

bool worker_group_state::has_loops(std::size_t host) const {
  auto& its = hosts->roster().at(host);
  for (int local = 0; local < its.ranks; ++local)
    if (!attempt->tracker.loop_over(its.first_rank + local))
      return true;
  return false;
}

void worker_group_state::let_leave(std::string why,
                                   std::chrono::milliseconds grace) {
  if (!attempt || attempt->tracker.end_ordered())
    return;
  // The processes need a moment to end before the host does.
  auto limit = std::max(grace - args.plan.stop_timeout, grace / 2);
  auto end = now_ms() + limit.count();
  if (!attempt->leaves.continue_later(std::move(why), end))
    return;
  after(limit, [this, end] {
    if (attempt->tracker.end_ordered())
      return;
    if (auto why = attempt->leaves.time_is_over(end))
      ending.end_all({ec::stopped, std::move(*why)}, args.plan.stop_timeout);
  });
}

bool worker_group_state::lose(const host_lost& x, const std::string& why) {
  // Of the latest attempt, which may be over: of its ranks' programs, too, some
  // may live on.
  auto had_ranks = has_begun && hosts->has_ranks(x.host);
  if (had_ranks && args.abandon)
    args.abandon(hosts->roster().name(x.host));
  if (attempt)
    attempt->excuses.lost(x, why, had_ranks);
  return ending.lose_ranks_of(x.host, why);
}

// -- the actor

void worker_group_state::set_up(pointer own, worker_group_args given,
                                host_roster roster) {
  self = own;
  args = std::move(given);
  self->set_exception_handler(from_exception);
  host_effects effects{
    [this](const start_with_hosts& x) {
      // An attempt that was stopped meanwhile needs no hosts.
      if (gathering)
        begin(*std::exchange(gathering, std::nullopt), x.hosts);
    },
    [this](const too_few_hosts& x) { give_up(x); },
    [this](const host_lost& x, const std::string& why) { return lose(x, why); },
  };
  hosts.emplace(self, args, std::move(roster), std::move(effects));
}

worker_group_actor::behavior_type worker_group(worker_group_state::pointer self,
                                               worker_group_args args,
                                               host_roster hosts) {
  auto& state = state_of(self);
  state.set_up(self, std::move(args), std::move(hosts));
  worker_group_actor::behavior_type behavior{
    [&state](const start_attempt& x, driver_actor& from) {
      state.start(x, std::move(from));
    },
    [&state](const stop_attempt& x) { state.stop(x); },
    [&state](const preempt_attempt& x) { state.preempt(x); },
    [&state](agent_hello& x, const caf::strong_actor_ptr& agent) {
      return state.hosts->welcome(x, agent);
    },
    [&state](const host_checked& x) { return state.hosts->take_in(x); },
    [&state](const host_tick& x) { return state.hosts->take_in(x); },
    [&state](const host_notice& x) { state.note_host(x); },
    [&state](const host_warning& x) { state.hosts->note_warning(x); },
    [&state](const agent_launched& x) { state.hosts->note_launch(x); },
    [&state](const launcher_said& x) { state.hosts->note_launcher(x); },
    [&state](const launcher_ended& x) { state.hosts->note_launcher(x); },
    [&state](const rank_launched& x) { state.launched(x); },
    [&state](const rank_launch_failed& x) { state.ending.launch_failed(x); },
    [&state](rank_ready& x) { return state.ready(x); },
    [&state](host_calls& x) { state.calls.take(x); },
    [&state](const rank_loop_ended& x) { state.ending.loop_ended(x); },
    [&state](const rank_disconnected& x) { state.ending.disconnected(x); },
    [&state](const rank_exited& x) { state.ending.exited(x); },
    [&state, self](log_event& x) -> caf::result<void> {
      if (!state.attempt.current(x.attempt))
        return to_caf(state.attempt.too_late(x.attempt));
      return delegate(self, state.driver, std::move(x));
    },
    [&state, self](get_checkpoints& x) {
      return delegate(self, state.driver, std::move(x));
    },
    [&state, self](open_mailbox& x,
                   postbox_actor& box) -> caf::result<caf::actor> {
      if (!state.attempt.current(x.attempt))
        return to_caf(state.attempt.too_late(x.attempt));
      // The ranks of the driver's host are not those of node 0 if it has none.
      x.is_near = !state.hosts->is_elsewhere(x.rank);
      return delegate(self, state.driver, std::move(x), std::move(box));
    },
    [&state](store_set& x) { return ask_store(state, x, &group_store::set); },
    [&state](const store_get& x) {
      return ask_store(state, x, &group_store::get);
    },
    [&state](const store_add& x) {
      return ask_store(state, x, &group_store::add);
    },
    [&state](const store_check& x) {
      return ask_store(state, x, &group_store::check);
    },
    [&state](const store_wait& x) {
      return ask_store(state, x, &group_store::wait);
    },
    [&state](const store_erase& x) {
      return ask_store(state, x, &group_store::erase);
    },
    [&state](const store_size& x) {
      return ask_store(state, x, &group_store::size);
    },
    [&state](store_compare_set& x) {
      return ask_store(state, x, &group_store::compare_set);
    },
  };
  return with_exit_handler(
    self, [&state](const caf::error& why) { state.ending.leave(why); },
    std::move(behavior));
}

} // namespace troupe::internal
