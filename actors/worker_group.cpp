#include "troupe/actors/worker_group.hpp"

#include <chrono>
#include <optional>
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

/// How long no agent is launched on *x*, which has left and may not be gone
/// yet; nothing if that is not what holds a launch back.
std::optional<std::chrono::seconds>
time_until_back(const run_host& x, std::chrono::steady_clock::time_point now) {
  if (x.state != host_state::left || !x.next_launch || x.gone_at <= now)
    return std::nullopt;
  return std::chrono::ceil<std::chrono::seconds>(*x.next_launch - now);
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

worker_group_state::attempt_state::attempt_state(
  worker_group_actor::pointer self, const start_attempt& x,
  const group_plan& plan, std::vector<bool> have_gpus)
  : first_report(x.first_report), resume(x.resume),
    tracker(static_cast<int>(have_gpus.size())),
    meetings(tracker.world_size(), x.first_report), store(self),
    monitor(std::move(have_gpus),
            {plan.report_timeout, plan.hang_timeout, plan.in_process}),
    excuses(plan.world.is_elastic()),
    causes({plan.exit_timeout, plan.stop_timeout, plan.in_process}) {}

// -- start of an attempt

void worker_group_state::start(const start_attempt& x, driver_actor from) {
  driver = std::move(from);
  attempt.reset();
  gathering = x;
  // After the first attempt, the run continues with the hosts that are left.
  auto at_once = args.plan.world.is_elastic() && has_begun;
  auto now = self->clock().now();
  carry_out(hosts.gather(now, at_once));
  if (gathering) {
    note(hosts.waiting_text());
    for (auto& host : hosts.all())
      if (auto pause = time_until_back(host, now))
        note(concat("host ", host.name, " is launched again in ",
                    duration_text(*pause)));
  }
  offer_places(); // Now there is a token.
}

void worker_group_state::begin(const start_attempt& x,
                               const std::vector<std::size_t>& chosen) {
  has_begun = true;
  if (args.plan.world.is_elastic())
    hosts.deal(hosts.shares_on(chosen, args.plan.world));
  std::vector<bool> have_gpus;
  for (int rank = 0; rank < hosts.world_size(); ++rank)
    have_gpus.push_back(!gpus_of(rank).empty());
  attempt.begin(x.attempt, self, x, args.plan, std::move(have_gpus));
  attempt->begun = self->clock().now();
  resizes.attempt_began(attempt->world_size());
  hosts.attempt_started(chosen);
  if (args.plan.network_interface.empty()) // Else each host has said its own.
    hosts.close_ring();
  for (std::size_t i = 0; i < hosts.all().size(); ++i)
    if (hosts.at(i).ranks > 0)
      start_on(i);
  watch_start();
}

void worker_group_state::start_on(std::size_t host) {
  auto limit = args.plan.report_timeout;
  start_ranks order{attempt->number,
                    {},
                    attempt->resume,
                    args.plan.loop,
                    !limit || *limit >= least_limit,
                    token(),
                    args.plan.environment,
                    args.plan.credentials};
  auto first = hosts.at(host).first_rank;
  auto end = first + hosts.at(host).ranks;
  for (int rank = first; rank < end; ++rank)
    order.ranks.push_back(facts_of(host, rank));
  auto failed = [this, first, end,
                 number = attempt->number](const caf::error& why) {
    if (!is_ours(why))
      return; // The agent is gone, which the group learns next.
    for (int rank = first; rank < end; ++rank)
      launch_failed({number, rank, from_caf(why)});
  };
  request(self, agent_at(host), caf::infinite, std::move(order),
          worker_group_actor{self})
    .then([] {}, failed);
}

void worker_group_state::after(std::chrono::milliseconds limit,
                               std::function<void()> f, bool again) {
  auto due = args.now() + limit;
  self->run_delayed(limit, [this, limit, due, again, f = std::move(f),
                            number = attempt->number]() mutable {
    if (!attempt.is(number))
      return;
    // Messages that ranks sent while the driver was stopped come after this.
    if (again && stood_still(args.now() - due, limit.zero()))
      after(limit, std::move(f), false);
    else
      f();
  });
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
    on_failure();
  });
}

rank_facts worker_group_state::facts_of(std::size_t host, int rank) const {
  auto& plan = args.plan;
  auto& its = hosts.at(host);
  rank_facts x;
  x.run_name = plan.run_name;
  x.run_id = plan.run_id;
  x.run_path = plan.run_path;
  x.run_inode = plan.run_inode;
  x.attempt = attempt->number;
  x.rank = rank;
  x.world_size = attempt->world_size();
  x.local_rank = rank - its.first_rank;
  x.local_world_size = its.ranks;
  x.node_rank = hosts.node_rank(host);
  if (hosts.is_open()) {
    x.host = its.name;
    x.host_address = its.address;
    x.lost_after_ms = hosts.lost_after().count();
  }
  x.in_process = plan.in_process;
  x.gpus = gpus_of(rank);
  x.first_report = attempt->first_report;
  return x;
}

std::vector<int> worker_group_state::gpus_of(int rank) const {
  auto host = hosts.host_with(rank);
  auto local = static_cast<std::size_t>(rank - hosts.at(host).first_rank);
  return args.plan.gpus_of(host, local);
}

host_agent_actor worker_group_state::agent_at(std::size_t host) const {
  auto found = agents->find(host);
  return found != agents->end() ? found->second : host_agent_actor{};
}

std::vector<host_agent_actor> worker_group_state::agents_of_ranks() const {
  std::vector<host_agent_actor> result;
  for (auto& [host, agent] : *agents)
    if (host > 0 && hosts.at(host).ranks > 0)
      result.push_back(agent);
  if (hosts.at(0).ranks > 0)
    result.push_back(agent_at(0));
  return result;
}

void worker_group_state::launched(const rank_launched& x) {
  auto a = attempt.current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  a->tracker.launched(x.rank, x.pid);
  if (a->tracker.end_ordered())
    kill(x.rank);
}

void worker_group_state::launch_failed(const rank_launch_failed& x) {
  auto a = attempt.current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  a->tracker.launch_failed(x.rank, x.reason);
  on_failure();
  check_over();
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
  send(self, driver, attempt_started{a->number, a->world_size()});
  a->monitor.begin(args.now());
  watch_ranks();
  return caf::unit;
}

void worker_group_state::set_up(pointer own, worker_group_args given,
                                host_roster roster) {
  self = own;
  args = std::move(given);
  hosts = std::move(roster);
  agents->emplace(0, args.agent);
  self->set_exception_handler(from_exception);
  monitor(self, args.agent, [this](const caf::down_msg& x) { agent_lost(x); });
  resizes = resize_judge{args.plan.resize};
  if (hosts.is_open())
    watch_hosts();
  // A group that dies of a defect has its agents kill the ranks.
  self->attach_functor([known = agents](const caf::error& reason) {
    for (auto& [host, agent] : *known)
      if (reason == caf::none)
        caf::anon_send_exit(agent, caf::exit_reason::user_shutdown);
      else if (says_unfinished(reason))
        send_exit_anonymous(agent, reason);
      else
        caf::anon_send_exit(agent, caf::exit_reason::kill);
  });
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
      return state.welcome(x, agent);
    },
    [&state](const host_checked& x) { return state.take_in(x); },
    [&state](const host_tick& x) { return state.take_in(x); },
    [&state](const host_notice& x) { state.note_host(x); },
    [&state](const agent_launched& x) { state.note_launch(x); },
    [&state](const launcher_said& x) { state.note_launcher(x); },
    [&state](const launcher_ended& x) { state.note_launcher(x); },
    [&state](const rank_launched& x) { state.launched(x); },
    [&state](const rank_launch_failed& x) { state.launch_failed(x); },
    [&state](rank_ready& x) { return state.ready(x); },
    [&state](host_calls& x) { state.take(x); },
    [&state](rank_loop_ended& x) { state.end_loop(x); },
    [&state](const rank_disconnected& x) { state.disconnected(x); },
    [&state](const rank_exited& x) { state.exited(x); },
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
      x.is_near = !state.is_elsewhere(x.rank);
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
    self, [&state](const caf::error& why) { state.leave(why); },
    std::move(behavior));
}

} // namespace troupe::internal
