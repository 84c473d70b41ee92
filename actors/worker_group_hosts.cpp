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

// -- an agent comes

caf::result<host_accepted>
worker_group_state::welcome(agent_hello& x,
                            const caf::strong_actor_ptr& agent) {
  if (!hosts.is_open() || leaving)
    return to_caf({ec::stopped, "the run takes no more hosts"});
  if (!agent)
    return to_caf({ec::protocol, "the agent has ended"});
  auto its = caf::actor_cast<host_agent_actor>(agent);
  auto current = token();
  if (args.token && current == 0) {
    keep_waiting(std::move(its));
    return to_caf({ec::conflict, "an attempt begins: ask again"});
  }
  host_decisions decisions;
  auto number = hosts.admit(x.facts, self->clock().now(), decisions);
  if (!number) {
    carry_out(decisions);
    if (number.error().code == ec::conflict)
      keep_waiting(std::move(its));
    else
      note(concat("the agent of ", x.facts.host,
                  " was refused: ", number.error().message));
    return to_caf(number.error());
  }
  // An agent whose storage fails says hello every moment.
  auto& known = introduced[its.address()];
  auto clock = clock_warning(x.facts, std::chrono::system_clock::now(),
                             hosts.standstill_before(self->clock().now()));
  // Its text differs from hello to hello.
  if (!clock.empty() && known.insert("its clock").second)
    note(clock);
  for (auto& text : {hosts.shortage(*number), hosts.sharing(*number)})
    if (!text.empty() && known.insert(text).second)
      note(text);
  std::erase(agents_without_place, its);
  watch(its);
  agents->insert_or_assign(*number, std::move(its));
  return host_accepted{static_cast<std::uint32_t>(*number),
                       args.plan.run_path,
                       current,
                       args.plan.network_interface,
                       hosts.lost_after().count(),
                       args.plan.preempt_signals};
}

void worker_group_state::keep_waiting(host_agent_actor agent) {
  auto& known = agents_without_place;
  if (std::ranges::find(known, agent) != known.end())
    return;
  watch(agent);
  known.push_back(std::move(agent));
}

void worker_group_state::watch(const host_agent_actor& agent) {
  if (watched.insert(agent.address()).second)
    monitor(self, agent, [this](const caf::down_msg& x) { agent_lost(x); });
}

void worker_group_state::offer_places() {
  for (auto& agent : agents_without_place)
    send(self, agent, ask_for_place{});
}

caf::result<void> worker_group_state::take_in(const host_checked& x) {
  auto known = x.node_rank < hosts.all().size() ? hosts.at(x.node_rank).problem
                                                : std::string{};
  auto decisions = hosts.checked(x.node_rank, x.incarnation, x.problem,
                                 self->clock().now(), x.address);
  if (!decisions)
    return to_caf({ec::stopped, "another agent has the place of this one"});
  auto& name = hosts.name(x.node_rank);
  if (!x.problem) {
    note(concat("host ", name, " has joined"));
    journal("host_joined", {{"host", name}});
    if (args.launches.arrived)
      args.launches.arrived(hosts.at(x.node_rank).launch);
  } else {
    // It asks again every moment.
    if (x.problem.code != ec::conflict && x.problem.message != known)
      note(concat("the agent of ", name,
                  " cannot have ranks: ", x.problem.message));
    agents->erase(x.node_rank);
    offer_places();
  }
  carry_out(*decisions);
  note_room();
  return caf::unit;
}

// -- an agent is silent, or goes

caf::result<void> worker_group_state::take_in(const host_tick& x) {
  auto decisions =
    hosts.ticked(x.node_rank, x.incarnation, self->clock().now());
  if (!decisions)
    return to_caf({ec::stopped, "another agent has the place of this one"});
  carry_out(*decisions);
  return caf::unit;
}

void worker_group_state::note_host(const host_notice& x) {
  if (!hosts.has(x.node_rank, x.incarnation))
    return;
  auto why =
    concat("host ", hosts.name(x.node_rank), " is about to leave: ", x.reason);
  note(why);
  if (args.leaves_as_one && !hosts.at(x.node_rank).is_guest) {
    if (driver)
      send(self, driver, preempt_run{std::move(why), x.grace_ms});
    return;
  }
  auto grace = x.grace_ms < 0 ? args.plan.stop_grace
                              : std::chrono::milliseconds{x.grace_ms};
  auto has_ranks = attempt && hosts.at(x.node_rank).ranks > 0;
  carry_out(
    hosts.draining(x.node_rank, x.incarnation, grace, self->clock().now()));
  note_room();
  if (!has_ranks)
    return;
  attempt->excuses.leaves(x.node_rank, why);
  let_leave(std::move(why), grace);
}

void worker_group_state::let_leave(std::string why,
                                   std::chrono::milliseconds grace) {
  if (!attempt || attempt->tracker.end_ordered())
    return;
  auto end = now_ms() + grace.count();
  if (!attempt->leaves.continue_later(std::move(why), end))
    return;
  // The processes need a moment to end before the host does.
  auto limit = std::max(grace - args.plan.stop_timeout, grace / 2);
  after(limit, [this, end] {
    if (attempt->tracker.end_ordered())
      return;
    if (auto why = attempt->leaves.time_is_over(end))
      end_all({ec::stopped, std::move(*why)}, args.plan.stop_timeout);
  });
}

void worker_group_state::watch_hosts() {
  self->run_delayed(hosts.next_check(), [this] {
    carry_out(hosts.check(self->clock().now()));
    note_room(); // One that was left out may have ranks again.
    watch_hosts();
  });
}

void worker_group_state::agent_gone(std::size_t host,
                                    const caf::error& reason) {
  std::string why = "the connection to its agent ended";
  if (reason != caf::exit_reason::remote_link_unreachable)
    why += " (" + text_of(reason) + ')';
  agents->erase(host);
  auto incarnation = hosts.at(host).incarnation;
  if (!incarnation)
    return;
  auto decisions =
    hosts.gone(host, *incarnation, std::move(why), self->clock().now());
  if (decisions.empty()) // It was not here yet.
    offer_places();
  carry_out(decisions);
}

void worker_group_state::show(const host_suspected& x) {
  note(concat("host ", hosts.name(x.host), " has not answered for ",
              duration_text(x.silence)));
  note_room(); // A larger attempt would begin without it.
}

void worker_group_state::show(const host_answers& x) {
  note(concat("host ", hosts.name(x.host), " answers again"));
  note_room(); // The attempt may have begun without it.
}

void worker_group_state::show(const host_given_up& x) {
  auto min = std::chrono::duration_cast<std::chrono::minutes>(x.pause);
  note(concat("host ", hosts.name(x.host), " gets no other agent",
              min.count() > 0 ? concat(" for ", min.count(), " min") : "", ": ",
              x.cause));
}

void worker_group_state::show(const host_left_out& x) {
  auto min = std::chrono::duration_cast<std::chrono::minutes>(x.pause);
  auto have_begun = attempt->started || attempt->tracker.loop_failed();
  note(concat("host ", hosts.name(x.host), " gets no ranks for ", min.count(),
              " min: those of attempt ", attempt->number,
              have_begun ? " failed before a report" : " could not start"));
  offer_places();
}

void worker_group_state::lose(const host_lost& x) {
  auto& name = hosts.name(x.host);
  auto why = concat("host ", name, " is lost: ", x.cause);
  journal(event_kind::host_lost, {{"host", name}, {"cause", x.cause}});
  // Of the latest attempt, which may be over: of its ranks' programs, too, some
  // may live on.
  auto had_ranks = has_begun && hosts.at(x.host).ranks > 0;
  if (had_ranks && args.abandon)
    args.abandon(name);
  if (attempt)
    attempt->excuses.lost(x, why, had_ranks);
  if (!lose_ranks_of(x.host, why)) // Else their failure says so.
    note(why);
  note_room();
}

void worker_group_state::note_room() {
  if (attempt && args.plan.world.is_elastic())
    resizes.hosts_changed(
      ranks_in(hosts.shares_on(hosts.usable(), args.plan.world)));
}

// -- agents are launched

void worker_group_state::note_launch(const agent_launched& x) {
  carry_out(hosts.launched(x.launch, self->clock().now()));
}

void worker_group_state::note_launcher(const launcher_said& x) {
  auto host = hosts.host_of(x.launch);
  if (!host || hosts.at(*host).is_here() || leaving)
    return;
  note(concat("host ", hosts.name(*host), " is waited for: ", x.words));
  hosts.launcher_said(x.launch, x.words);
}

void worker_group_state::note_launcher(const launcher_ended& x) {
  auto host = hosts.host_of(x.launch);
  if (!host)
    return;
  if (!hosts.at(*host).is_here() && !leaving)
    note(concat("host ", hosts.name(*host), ": ", x.reason));
  carry_out(
    hosts.launcher_ended(x.launch, x.reason, x.may_help, self->clock().now()));
}

// -- what was decided

void worker_group_state::carry_out(const host_decisions& decisions) {
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
      else if constexpr (std::is_same_v<type, host_left_out>)
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

void worker_group_state::drop_agent(const fence_agent& x) {
  offer_places();
  auto agent = agents->find(x.host);
  if (agent == agents->end())
    return; // It is gone.
  // A host that is frozen takes no message: the agent ends as soon as it finds
  // its connection closed.
  if (args.cut_off)
    args.cut_off(agent->second);
  agents->erase(agent);
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
