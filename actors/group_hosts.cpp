#include "troupe/actors/group_hosts.hpp"

#include <type_traits>
#include <variant>

#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

namespace {

/// How long no agent is launched on *x*, which has left and may not be gone
/// yet; nothing if that is not what holds a launch back.
std::optional<std::chrono::seconds>
time_until_back(const run_host& x, std::chrono::steady_clock::time_point now) {
  if (x.state != host_state::left || !x.next_launch || x.gone_at <= now)
    return std::nullopt;
  return std::chrono::ceil<std::chrono::seconds>(*x.next_launch - now);
}

} // namespace

group_hosts::group_hosts(worker_group_actor::pointer self,
                         const worker_group_args& args, host_roster roster,
                         host_effects effects)
  : self_(self), args_(args), roster_(std::move(roster)),
    effects_(std::move(effects)),
    agents_(self, args.agent,
            [this](const caf::down_msg& x) { agent_lost(x); }),
    resizes_(args.plan.resize) {
  if (roster_.is_open())
    watch();
}

void group_hosts::note(std::string text) const {
  if (args_.note)
    args_.note(std::move(text));
}

void group_hosts::journal(std::string_view kind, metrics fields) const {
  if (args_.journal)
    args_.journal(kind, std::move(fields));
}

// -- an agent comes

caf::result<host_accepted>
group_hosts::welcome(agent_hello& x, const caf::strong_actor_ptr& agent) {
  if (!roster_.is_open() || is_closed_)
    return to_caf({ec::stopped, "the run takes no more hosts"});
  if (!agent)
    return to_caf({ec::protocol, "the agent has ended"});
  auto its = caf::actor_cast<host_agent_actor>(agent);
  auto current = token();
  if (args_.token && current == 0) {
    agents_.keep_waiting(std::move(its));
    return to_caf({ec::conflict, "an attempt begins: ask again"});
  }
  host_decisions decisions;
  auto number = roster_.admit(x.facts, now(), decisions);
  if (!number) {
    carry_out(decisions);
    if (number.error().code == ec::conflict)
      agents_.keep_waiting(std::move(its));
    else
      note(concat("the agent of ", x.facts.host,
                  " was refused: ", number.error().message));
    return to_caf(number.error());
  }
  // An agent whose storage fails says hello every moment.
  auto clock = clock_warning(x.facts, std::chrono::system_clock::now(),
                             roster_.standstill_before(now()));
  // Its text differs from hello to hello.
  if (!clock.empty() && agents_.is_new(its, "its clock"))
    note(clock);
  for (auto& text : {roster_.shortage(*number), roster_.sharing(*number)})
    if (!text.empty() && agents_.is_new(its, text))
      note(text);
  agents_.assign(*number, std::move(its));
  return host_accepted{static_cast<std::uint32_t>(*number),
                       args_.plan.run_path,
                       current,
                       args_.plan.network_interface,
                       roster_.lost_after().count(),
                       args_.plan.preempt_signals};
}

caf::result<void> group_hosts::take_in(const host_checked& x) {
  auto known = x.node_rank < roster_.all().size()
                 ? roster_.at(x.node_rank).problem
                 : std::string{};
  auto decisions =
    roster_.checked(x.node_rank, x.incarnation, x.problem, now(), x.address);
  if (!decisions)
    return to_caf({ec::stopped, "another agent has the place of this one"});
  auto& name = roster_.name(x.node_rank);
  if (!x.problem) {
    note(concat("host ", name, " has joined"));
    journal("host_joined", {{"host", name}});
    if (args_.launches.arrived)
      args_.launches.arrived(roster_.at(x.node_rank).launch);
  } else {
    // It asks again every moment.
    if (x.problem.code != ec::conflict && x.problem.message != known)
      note(concat("the agent of ", name,
                  " cannot have ranks: ", x.problem.message));
    agents_.drop(x.node_rank);
    agents_.offer_places();
  }
  carry_out(*decisions);
  note_room();
  return caf::unit;
}

// -- an agent is silent, or goes

caf::result<void> group_hosts::take_in(const host_tick& x) {
  auto decisions = roster_.ticked(x.node_rank, x.incarnation, now());
  if (!decisions)
    return to_caf({ec::stopped, "another agent has the place of this one"});
  carry_out(*decisions);
  return caf::unit;
}

void group_hosts::note_warning(const host_warning& x) const {
  if (roster_.has(x.node_rank, x.incarnation))
    note(concat("host ", roster_.name(x.node_rank), ": ", x.text));
}

void group_hosts::drain(std::size_t host, std::uint64_t incarnation,
                        std::chrono::milliseconds grace) {
  carry_out(roster_.draining(host, incarnation, grace, now()));
  note_room();
}

void group_hosts::watch() {
  self_->run_delayed(roster_.next_check(), [this] {
    carry_out(roster_.check(now()));
    note_room(); // One that was left out may have ranks again.
    watch();
  });
}

void group_hosts::agent_lost(const caf::down_msg& x) {
  auto host = agents_.ended(x.source);
  if (!host)
    return;
  // No other attempt can start without that of this host. It has killed its
  // ranks.
  if (*host == 0) {
    self_->quit(
      to_caf({ec::protocol, "the host agent is gone: " + text_of(x.reason)}));
    return;
  }
  std::string why = "the connection to its agent ended";
  if (x.reason != caf::exit_reason::remote_link_unreachable)
    why += " (" + text_of(x.reason) + ')';
  agents_.drop(*host);
  auto incarnation = roster_.at(*host).incarnation;
  if (!incarnation)
    return;
  auto decisions = roster_.gone(*host, *incarnation, std::move(why), now());
  if (decisions.empty()) // It was not here yet.
    agents_.offer_places();
  carry_out(decisions);
}

void group_hosts::show(const host_suspected& x) {
  note(concat("host ", roster_.name(x.host), " has not answered for ",
              duration_text(x.silence)));
  note_room(); // A larger attempt would begin without it.
}

void group_hosts::show(const host_answers& x) {
  note(concat("host ", roster_.name(x.host), " answers again"));
  note_room(); // The attempt may have begun without it.
}

void group_hosts::show(const host_given_up& x) {
  auto min = std::chrono::duration_cast<std::chrono::minutes>(x.pause);
  note(concat("host ", roster_.name(x.host), " gets no other agent",
              min.count() > 0 ? concat(" for ", min.count(), " min") : "", ": ",
              x.cause));
}

void group_hosts::lose(const host_lost& x) {
  auto& name = roster_.name(x.host);
  auto why = concat("host ", name, " is lost: ", x.cause);
  journal(event_kind::host_lost, {{"host", name}, {"cause", x.cause}});
  if (!effects_.lose(x, why)) // Else the failure of its ranks says so.
    note(why);
  note_room();
}

void group_hosts::note_room() {
  auto& world = args_.plan.world;
  if (world.is_elastic())
    resizes_.hosts_changed(
      ranks_in(roster_.shares_on(roster_.usable(), world)));
}

// -- agents are launched

void group_hosts::note_launch(const agent_launched& x) {
  carry_out(roster_.launched(x.launch, now()));
}

void group_hosts::note_launcher(const launcher_said& x) {
  auto host = roster_.host_of(x.launch);
  if (!host || roster_.at(*host).is_here() || is_closed_)
    return;
  note(concat("host ", roster_.name(*host), " is waited for: ", x.words));
  roster_.launcher_said(x.launch, x.words);
}

void group_hosts::note_launcher(const launcher_ended& x) {
  auto host = roster_.host_of(x.launch);
  if (!host)
    return;
  if (!roster_.at(*host).is_here() && !is_closed_)
    note(concat("host ", roster_.name(*host), ": ", x.reason));
  carry_out(roster_.launcher_ended(x.launch, x.reason, x.may_help, now()));
}

// -- attempts

void group_hosts::gather(bool at_once) {
  carry_out(roster_.gather(now(), at_once));
}

void group_hosts::note_missing() const {
  note(roster_.waiting_text());
  for (auto& host : roster_.all())
    if (auto pause = time_until_back(host, now()))
      note(concat("host ", host.name, " is launched again in ",
                  duration_text(*pause)));
}

void group_hosts::begin_attempt(const std::vector<std::size_t>& chosen) {
  if (args_.plan.world.is_elastic())
    roster_.deal(roster_.shares_on(chosen, args_.plan.world));
  resizes_.attempt_began(roster_.world_size());
  roster_.attempt_started(chosen);
  if (args_.plan.network_interface.empty()) // Else each host has said its own.
    roster_.close_ring();
}

void group_hosts::end_attempt() {
  carry_out(roster_.attempt_ended(now()));
}

std::string group_hosts::leave_out(std::set<std::size_t> failed,
                                   std::uint64_t attempt, time_point begun,
                                   bool have_begun) {
  auto decisions = have_begun
                     ? roster_.loops_failed(std::move(failed), begun, now())
                     : roster_.start_failed(std::move(failed), begun, now());
  std::string names;
  for (auto& decision : decisions) {
    auto& x = std::get<host_left_out>(decision);
    auto& name = roster_.name(x.host);
    auto min = std::chrono::duration_cast<std::chrono::minutes>(x.pause);
    note(concat("host ", name, " gets no ranks for ", min.count(),
                " min: those of attempt ", attempt,
                have_begun ? " failed before a report" : " could not start"));
    agents_.offer_places();
    append_item(names, name);
  }
  return names;
}

std::vector<host_agent_actor> group_hosts::agents_of_ranks() const {
  std::vector<host_agent_actor> result;
  for (auto& [host, agent] : agents_.by_host())
    if (host > 0 && has_ranks(host))
      result.push_back(agent);
  if (has_ranks(0))
    result.push_back(agents_.at(0));
  return result;
}

// -- what was decided

void group_hosts::carry_out(const host_decisions& decisions) {
  for (auto& decision : decisions) {
    auto act = [this](const auto& x) {
      using type = std::decay_t<decltype(x)>;
      if constexpr (std::is_same_v<type, launch_agent>)
        args_.launches.begin(x.host, x.launch);
      else if constexpr (std::is_same_v<type, end_launcher>)
        args_.launches.end(x.launch);
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
        effects_.give_up(x);
      else if constexpr (std::is_same_v<type, start_with_hosts>)
        effects_.start(x);
      else // Follows from `leave_out` alone.
        static_assert(std::is_same_v<type, host_left_out>);
    };
    std::visit(act, decision);
  }
}

void group_hosts::drop_agent(const fence_agent& x) {
  agents_.offer_places();
  // A host that is frozen takes no message: the agent ends as soon as it finds
  // its connection closed.
  if (auto agent = agents_.drop(x.host); agent && args_.cut_off)
    args_.cut_off(agent);
}

} // namespace troupe::internal
