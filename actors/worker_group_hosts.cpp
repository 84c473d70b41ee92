// What the WORKER GROUP does as the agents of other hosts come and go.

#include <algorithm>
#include <type_traits>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/worker_group.hpp"
#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

// -- who has an agent

std::size_t worker_group_state::agents_here() const {
  return static_cast<std::size_t>(
    std::ranges::count_if(args.hosts, [](const group_host& x) {
      return static_cast<bool>(x.agent);
    }));
}

void worker_group_state::note_agents() {
  agents->clear();
  for (auto& host : args.hosts)
    if (host.agent)
      agents->push_back(host.agent);
}

// -- an agent comes

caf::result<host_accepted>
worker_group_state::welcome(agent_hello& x,
                            const caf::strong_actor_ptr& agent) {
  if (!args.roster || leaving)
    return to_caf({ec::stopped, "the run takes no more hosts"});
  if (!agent)
    return to_caf({ec::protocol, "the agent has ended"});
  auto current = token();
  if (args.token && current == 0)
    return to_caf({ec::conflict, "an attempt begins: ask again"});
  host_decisions decisions;
  auto number = args.roster->admit(x.facts, self->clock().now(), decisions);
  if (!number) {
    follow(decisions);
    if (number.error().code != ec::conflict) // It asks again every moment.
      note(concat("the agent of ", x.facts.host,
                  " was refused: ", number.error().message));
    return to_caf(number.error());
  }
  for (auto& text : {clock_warning(x.facts, std::chrono::system_clock::now()),
                     args.roster->shortage(*number)})
    if (!text.empty())
      note(text);
  if (*number == args.hosts.size())
    add_guest(*number);
  auto& host = args.hosts[*number];
  host.agent = caf::actor_cast<host_agent_actor>(agent);
  host.incarnation = x.facts.incarnation;
  host.address = x.facts.address;
  host.driver_address = x.facts.driver_address;
  host.slots = args.roster->slots(*number);
  note_agents();
  monitor(self, host.agent,
          [this](const caf::down_msg& down) { agent_lost(down); });
  return host_accepted{static_cast<std::uint32_t>(*number), args.plan.run_path,
                       current, args.plan.network_interface};
}

// It has its first ranks in the next attempt.
void worker_group_state::add_guest(std::size_t number) {
  auto& last = args.hosts.back();
  args.hosts.push_back(
    {{}, last.first_rank + last.ranks, 0, args.roster->slots(number)});
  stale_at_hosts.push_back(0);
}

caf::result<void> worker_group_state::take_in(const host_checked& x) {
  auto now = self->clock().now();
  auto decisions =
    args.roster
      ? args.roster->checked(x.node_rank, x.incarnation, x.problem, now)
      : std::nullopt;
  if (!decisions)
    return to_caf({ec::stopped, "another agent has the place of this one"});
  auto& name = args.roster->name(x.node_rank);
  if (!x.problem) {
    if (!x.address.empty())
      args.hosts[x.node_rank].address = x.address;
    note(concat("host ", name, " has joined"));
    journal("host_joined", {{"host", name}});
    if (args.launches.arrived)
      args.launches.arrived(args.roster->launch_of(x.node_rank));
  } else {
    if (x.problem.code != ec::conflict) // It asks again.
      note(concat("the agent of ", name,
                  " cannot have ranks: ", x.problem.message));
    args.hosts[x.node_rank].agent = nullptr;
    note_agents();
  }
  follow(*decisions);
  note_room();
  return caf::unit;
}

// -- an agent is silent, or goes

caf::result<void> worker_group_state::take_in(const host_tick& x) {
  auto decisions = args.roster ? args.roster->ticked(x.node_rank, x.incarnation,
                                                     self->clock().now())
                               : std::nullopt;
  if (!decisions)
    return to_caf({ec::stopped, "another agent has the place of this one"});
  follow(*decisions);
  return caf::unit;
}

void worker_group_state::note_host(const host_notice& x) {
  if (!args.roster || !args.roster->has(x.node_rank, x.incarnation))
    return;
  auto why = concat("host ", args.roster->name(x.node_rank),
                    " is about to leave: ", x.reason);
  note(why);
  if (args.leaves_as_one && !args.roster->is_guest(x.node_rank)) {
    if (driver)
      send(self, driver, preempt_run{std::move(why), x.grace_ms});
    return;
  }
  auto grace = x.grace_ms < 0 ? args.plan.stop_grace
                              : std::chrono::milliseconds{x.grace_ms};
  auto has_ranks = attempt && args.hosts[x.node_rank].ranks > 0;
  follow(args.roster->draining(x.node_rank, x.incarnation, grace,
                               self->clock().now()));
  note_room();
  if (!has_ranks)
    return;
  attempt->excuses.leaves(x.node_rank, why);
  let_leave(std::move(why), grace);
}

void worker_group_state::let_leave(std::string why,
                                   std::chrono::milliseconds grace) {
  using namespace std::chrono;
  if (!attempt || attempt->tracker.end_ordered())
    return;
  auto end = duration_cast<milliseconds>(
    (system_clock::now() + grace).time_since_epoch());
  if (!attempt->leaves.continue_later(std::move(why), end.count()))
    return;
  // The processes need a moment to end before the host does.
  auto limit = std::max(grace - args.plan.stop_timeout, grace / 2);
  after(limit, [this, end = end.count()] {
    if (attempt->tracker.end_ordered())
      return;
    if (auto why = attempt->leaves.time_is_over(end))
      end_all({ec::stopped, std::move(*why)}, args.plan.stop_timeout);
  });
}

void worker_group_state::watch_hosts() {
  self->run_delayed(args.roster->next_check(), [this] {
    follow(args.roster->check(self->clock().now()));
    watch_hosts();
  });
}

void worker_group_state::agent_gone(std::size_t host,
                                    const caf::error& reason) {
  auto& gone = args.hosts[host];
  std::string why = "the connection to its agent ended";
  if (reason != caf::exit_reason::remote_link_unreachable)
    why += " (" + text_of(reason) + ')';
  gone.agent = nullptr;
  note_agents();
  follow(args.roster->gone(host, gone.incarnation, std::move(why),
                           self->clock().now()));
}

void worker_group_state::show(const host_suspected& x) {
  auto s = std::chrono::duration_cast<std::chrono::seconds>(x.silence);
  note(concat("host ", args.roster->name(x.host), " has not answered for ",
              s.count(), " s"));
}

void worker_group_state::show(const host_answers& x) {
  note(concat("host ", args.roster->name(x.host), " answers again"));
  note_room(); // The attempt may have begun without it.
}

void worker_group_state::show(const host_given_up& x) {
  auto min = std::chrono::duration_cast<std::chrono::minutes>(x.pause);
  note(concat("host ", args.roster->name(x.host), " gets no other agent",
              min.count() > 0 ? concat(" for ", min.count(), " min") : "", ": ",
              x.cause));
}

void worker_group_state::lose(const host_lost& x) {
  auto& name = args.roster->name(x.host);
  auto why = concat("host ", name, " is lost: ", x.cause);
  journal("host_lost", {{"host", name}, {"cause", x.cause}});
  if (args.abandon)
    args.abandon(name);
  if (!attempt) // Else the failure of its ranks says so.
    note(why);
  if (attempt)
    attempt->excuses.lost(x, why, args.hosts[x.host].ranks > 0);
  lose_ranks_of(args.hosts[x.host], why);
  note_room();
}

void worker_group_state::note_room() {
  if (attempt && args.plan.world.is_elastic())
    resizes.hosts_changed(ranks_in(shares_on(args.roster->usable())));
}

// -- agents are launched

void worker_group_state::note_launch(const agent_launched& x) {
  if (args.roster)
    follow(args.roster->launched(x.launch, self->clock().now()));
}

void worker_group_state::note_launcher(const launcher_ended& x) {
  auto host = args.roster ? args.roster->host_of(x.launch) : std::nullopt;
  if (!host)
    return;
  if (!args.roster->is_ready(*host) && !leaving)
    note(concat("host ", args.roster->name(*host), ": ", x.words));
  follow(args.roster->launcher_ended(x.launch, x.words, x.may_help,
                                     self->clock().now()));
}

// -- what was decided

void worker_group_state::follow(const host_decisions& decisions) {
  for (auto& decision : decisions) {
    auto act = [this](const auto& x) {
      using type = std::decay_t<decltype(x)>;
      if constexpr (std::is_same_v<type, launch_agent>)
        args.launches.begin(x.host, x.launch);
      else if constexpr (std::is_same_v<type, end_launcher>)
        args.launches.end(x.launch);
      else if constexpr (std::is_same_v<type, fence_agent>)
        drop_agent(x);
      else if constexpr (std::is_same_v<type, host_suspected>)
        show(x);
      else if constexpr (std::is_same_v<type, host_answers>)
        show(x);
      else if constexpr (std::is_same_v<type, host_lost>)
        lose(x);
      else if constexpr (std::is_same_v<type, host_given_up>)
        show(x);
      else if constexpr (std::is_same_v<type, too_few_hosts>)
        give_up_gathering(x);
      else if constexpr (std::is_same_v<type, start_with_hosts>)
        // An attempt that was stopped meanwhile needs no hosts.
        if (gathering)
          begin(*std::exchange(gathering, std::nullopt), x.hosts);
    };
    std::visit(act, decision);
  }
}

std::vector<host_share>
worker_group_state::shares_on(const std::vector<std::size_t>& hosts) const {
  std::vector<world_candidate> candidates;
  for (auto i : hosts)
    candidates.push_back({i, args.hosts[i].slots});
  return plan_world(candidates, args.plan.world, args.hosts.size());
}

void worker_group_state::close_ring() {
  if (!args.plan.network_interface.empty())
    return; // Each host has said what its address is.
  auto has_ranks = [](const group_host& x) { return x.ranks > 0; };
  auto last = std::find_if(args.hosts.rbegin(), args.hosts.rend(), has_ranks);
  args.hosts.front().address = last->driver_address;
}

void worker_group_state::drop_agent(const fence_agent& x) {
  auto& host = args.hosts[x.host];
  if (!host.agent || host.incarnation != x.incarnation)
    return; // It is gone.
  // A host that is frozen takes no message: the agent ends as soon as it finds
  // its connection closed.
  if (args.cut_off)
    args.cut_off(host.agent);
  host.agent = nullptr;
  note_agents();
}

void worker_group_state::give_up_gathering(const too_few_hosts& x) {
  if (!gathering)
    return;
  attempt_failed failed{gathering->attempt};
  failed.reason = x.reason;
  failed.is_final = true;
  gathering.reset();
  send(self, driver, std::move(failed));
}

} // namespace troupe::internal
