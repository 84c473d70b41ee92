#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/agent_facts.hpp"
#include "troupe/runtime/hosts/host_plan.hpp"
#include "troupe/runtime/hosts/host_states.hpp"
#include "troupe/runtime/hosts/world_plan.hpp"

namespace troupe::internal {

/// What people should know of the clock of *x* if the driver's shows *now* and
/// may have been stopped for *stopped* when *x* came; empty if the two agree.
std::string clock_warning(const agent_facts& x,
                          std::chrono::system_clock::time_point now,
                          std::chrono::milliseconds stopped = {});

/// The hosts of a run: which agent has which, whether all are here, who is
/// missing, whom to launch, and which ranks each has. Host 0 is the driver's
/// own and always here.
///
/// An agent says hello and is assigned a host, by its number; it counts once it
/// has checked that it can work there. One that is gone leaves its host to
/// another: if agents come by themselves, first of all to one of the same host
/// name, otherwise to the next one that is launched there. In a run of a fixed
/// number of ranks, hosts without any get the agents that no other host needs.
///
/// Where agents are launched, an elastic run takes guests, too: agents that
/// someone else has started, while the hosts that are here have too few slots
/// for its most ranks, without those that are left out. A guest on a host of
/// the run gets that host, others are further hosts.
///
/// A host needs what its ranks claim. One that has too little is refused; in an
/// elastic run, it has as many ranks as it can hold.
class host_roster {
public:
  using time_point = host_states::time_point;

  /// The run has its *ranks* on the driver's host, and takes no agents.
  explicit host_roster(int ranks = 1);

  /// *hosts* have the ranks of the first attempt; agents come by themselves.
  /// *own* is the driver's program and host; *addresses* is where agents
  /// connect, for messages.
  host_roster(const std::vector<planned_host>& hosts, agent_facts own,
              host_limits limits, std::string addresses);

  /// The same for agents that are launched on all hosts but the driver's own.
  host_roster(const std::vector<planned_host>& hosts, agent_facts own,
              host_limits limits, std::string addresses,
              random_function random);

  /// Whether agents may join.
  bool is_open() const noexcept { return is_open_; }

  /// The host that the agent *x* is assigned, the same if it asks again.
  /// `ec::invalid_config` if it can never have one, `ec::conflict` if all are
  /// taken, or if it has been here and lacks what its ranks claim, such as GPUs
  /// that show late after a boot, for `late_room` of each agent if it has room
  /// for some, `ec::stopped` if another launch has replaced its own. All are
  /// taken, too, if only hosts without ranks are free and its own host may be
  /// so soon; see `host_states::may_be_free_soon`. What follows from a refusal
  /// is added to *decisions*.
  expected<std::size_t> admit(const agent_facts& x, time_point now,
                              host_decisions& decisions);

  /// Why *host*, whose agent was admitted, has fewer ranks than planned; empty:
  /// it has them all.
  std::string shortage(std::size_t host) const;

  /// What people should know if *host* is a machine that has another agent;
  /// empty: it is not. Containers of one machine differ in their names.
  std::string sharing(std::size_t host) const;

  /// The agent of *host* has checked it, and found *problem* or none; see
  /// `asks_again`. No problem is final for a host that was here before. Nothing
  /// if another agent has the host by now. *address*: another one than that of
  /// its connection.
  std::optional<host_decisions> checked(std::size_t host,
                                        std::uint64_t incarnation,
                                        const error& problem, time_point now,
                                        const std::string& address = {});

  /// A sign of the agent *incarnation* of *host*. Nothing if another agent has
  /// the host by now.
  std::optional<host_decisions>
  ticked(std::size_t host, std::uint64_t incarnation, time_point now);

  /// The agent *incarnation* of *host* is gone.
  host_decisions gone(std::size_t host, std::uint64_t incarnation,
                      std::string cause, time_point now);

  /// *host* is about to leave, and will be gone after *grace*.
  host_decisions draining(std::size_t host, std::uint64_t incarnation,
                          host_limits::duration grace, time_point now) {
    return states_.on_draining(host, incarnation, grace, now);
  }

  /// Whether the agent *incarnation* has *host*, and has checked it.
  bool has(std::size_t host, std::uint64_t incarnation) const {
    return has_host(host, incarnation) && at(host).is_here();
  }

  /// The launcher *launch* has passed the ticket on.
  host_decisions launched(std::uint64_t launch, time_point now);

  /// The host that *launch* was for, unless another one has replaced it.
  std::optional<std::size_t> host_of(std::uint64_t launch) const;

  /// The launcher *launch* has *said* something; see
  /// `host_states::on_launcher_said`.
  void launcher_said(std::uint64_t launch, std::string said);

  /// The launcher *launch* ended; see `host_states::on_launcher_ended`.
  host_decisions launcher_ended(std::uint64_t launch, std::string reason,
                                bool may_help, time_point now);

  /// An attempt runs on those of *hosts* that have ranks; is over; has made
  /// progress.
  void attempt_started(std::vector<std::size_t> hosts);
  host_decisions attempt_ended(time_point now) {
    return states_.on_attempt_ended(now);
  }
  void progressed() noexcept { states_.on_progress(); }

  /// Ranks on *failed* hosts could not start; see
  /// `host_states::on_start_failed`.
  host_decisions start_failed(std::set<std::size_t> failed, time_point begun,
                              time_point now) {
    return states_.on_start_failed(std::move(failed), begun, now);
  }

  /// The loops of ranks on *failed* hosts have failed; see
  /// `host_states::on_loops_failed`.
  host_decisions loops_failed(std::set<std::size_t> failed, time_point begun,
                              time_point now) {
    return states_.on_loops_failed(std::move(failed), begun, now);
  }

  /// An attempt is to start: `start_with_hosts` once all are here, or, if
  /// *at_once*, enough of them; or `too_few_hosts` after the join limit.
  host_decisions gather(time_point now, bool at_once = false);

  /// The hosts that an attempt could use now.
  std::vector<std::size_t> usable() const { return states_.usable(); }

  /// To be called each `next_check`.
  host_decisions check(time_point now);
  host_limits::duration next_check() const { return states_.next_check(); }

  /// See `host_states::standstill_before`.
  host_limits::duration standstill_before(time_point now) const noexcept {
    return states_.standstill_before(now);
  }

  /// How long a host may be silent.
  host_limits::duration lost_after() const noexcept {
    return limits_.lost_after;
  }

  /// Time after which a host that is silent has been lost.
  host_limits::duration loss_limit() const noexcept {
    return limits_.lost_after + 3 * limits_.tick;
  }

  /// Which hosts an attempt waits for, and where their agents connect.
  std::string waiting_text() const;

  /// As people know it: "h2", or "host 1" before any agent has come.
  const std::string& name(std::size_t host) const { return at(host).name; }

  /// By number; there are more after guests.
  const std::vector<run_host>& all() const noexcept { return states_.hosts(); }
  const run_host& at(std::size_t host) const { return all()[host]; }

  // -- ranks

  /// The shares of an attempt on *hosts*, one per host; empty: they are too
  /// few.
  std::vector<host_share> shares_on(const std::vector<std::size_t>& hosts,
                                    const world_range& world) const;

  /// The next attempt has these, if they are not those of the first one.
  void deal(const std::vector<host_share>& shares) { states_.deal(shares); }

  int world_size() const noexcept {
    return all().back().first_rank + all().back().ranks;
  }

  std::size_t host_with(int rank) const;

  /// How many hosts before *host* have ranks.
  int node_rank(std::size_t host) const;

  /// In a ring, the ranks of the last host reach those of the first at the
  /// driver's end of its agent's connection.
  void close_ring();

private:
  host_roster(std::vector<run_host> hosts, agent_facts own, host_limits limits,
              std::string addresses, random_function random, bool launches);

  /// Whether the agent *incarnation*, which is not the driver's own, has it.
  bool has_host(std::size_t host, std::uint64_t incarnation) const {
    return host > 0 && host < all().size()
           && at(host).incarnation == incarnation;
  }
  /// Whether an agent of the same machine has checked *host* before.
  bool was_here(std::size_t host, const agent_facts& x) const {
    return host < all().size() && at(host).was_here
           && at(host).own_name == x.host;
  }
  expected<std::size_t> host_for(const agent_facts& x, time_point now);
  /// The *spare*, unless *x* is to wait for its own host, which has ranks.
  expected<std::size_t> spare_for(const agent_facts& x, std::size_t spare,
                                  time_point now);
  expected<std::size_t> host_for_launched(const agent_facts& x) const;
  /// Their number if it is a further host.
  expected<std::size_t> host_for_guest(const agent_facts& x) const;
  /// What the host of *x* can hold of *planned* ranks.
  host_room room_on(const agent_facts& x, int planned) const;
  /// Slots of a further host: as many as the largest of the others has, since
  /// hosts of one run are alike.
  int slots_of_guest() const;
  std::optional<std::size_t> host_of_agent(std::uint64_t incarnation) const;
  /// The host without an agent that suits one best, by *fit_of*.
  template <class Function>
  std::optional<std::size_t> free_host(Function fit_of) const;
  bool has_room() const;
  error all_taken() const;

  agent_facts own_;
  host_limits limits_;
  bool is_open_ = true;
  bool launches_; ///< Agents are launched, and do not come by themselves.
  std::string addresses_;
  host_states states_;
};

} // namespace troupe::internal
