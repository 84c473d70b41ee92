#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/agent_facts.hpp"
#include "troupe/runtime/hosts/host_states.hpp"

namespace troupe::internal {

/// What people should know of the clock of *x* if the driver's shows *now*;
/// empty if the two agree.
std::string clock_warning(const agent_facts& x,
                          std::chrono::system_clock::time_point now);

/// Which agent has which host of a run: who is admitted, whether all are here,
/// who is missing, and whom to launch. Host 0 is the driver's own and always
/// here.
///
/// An agent says hello and is assigned a host, by its number; it counts once it
/// has checked that it can work there. One that is gone leaves its host to
/// another: if agents come by themselves, first of all to one of the same host
/// name, otherwise to the next one that is launched there.
///
/// Where agents are launched, an elastic run takes guests, too: agents that
/// someone else has started, while the hosts that are here have too few slots
/// for its most ranks. A guest on a host of the run gets that host, others are
/// further hosts.
///
/// A host needs what its ranks claim. One that has too little is refused; in an
/// elastic run, it has as many ranks as it can hold.
class host_roster {
public:
  using time_point = host_states::time_point;

  /// *own* is the driver's program and host; *addresses* is where agents
  /// connect, for messages. *slots* are the ranks of each host, in an elastic
  /// run the most of them.
  host_roster(std::size_t hosts, agent_facts own, host_limits limits,
              std::string addresses, const std::vector<int>& slots = {});

  /// The same for agents that are launched on the hosts *launched*, those of
  /// the run after the driver's own.
  host_roster(const std::vector<std::string>& launched, agent_facts own,
              host_limits limits, std::string addresses, random_function random,
              const std::vector<int>& slots = {});

  /// The host that the agent *x* is assigned, the same if it asks again.
  /// `ec::invalid_config` if it can never have one, `ec::conflict` if all are
  /// taken, `ec::stopped` if another launch has replaced its own. What follows
  /// from a refusal is added to *decisions*.
  expected<std::size_t> admit(const agent_facts& x, time_point now,
                              host_decisions& decisions);

  /// Why *host*, whose agent was admitted, has fewer ranks than planned; empty:
  /// it has them all.
  std::string shortage(std::size_t host) const;

  /// The agent of *host* has checked it, and found *problem* or none. After
  /// `ec::conflict` it asks for a host again. Nothing if another agent has the
  /// host by now.
  std::optional<host_decisions> checked(std::size_t host,
                                        std::uint64_t incarnation,
                                        const error& problem, time_point now);

  /// A sign of the agent *incarnation* of *host*. Nothing if another agent has
  /// the host by now.
  std::optional<host_decisions>
  ticked(std::size_t host, std::uint64_t incarnation, time_point now);

  /// The agent *incarnation* of *host* is gone.
  host_decisions gone(std::size_t host, std::uint64_t incarnation,
                      std::string cause, time_point now);

  /// *host* is about to leave, and will be gone after *grace*.
  host_decisions draining(std::size_t host, std::uint64_t incarnation,
                          host_limits::duration grace, time_point now);

  /// Whether the agent *incarnation* has *host*, and has checked it.
  bool has(std::size_t host, std::uint64_t incarnation) const {
    return host < hosts_.size() && hosts_[host].is_ready
           && hosts_[host].incarnation == incarnation;
  }

  /// The launcher *launch* has passed the ticket on.
  host_decisions launched(std::uint64_t launch, time_point now);

  /// The host that *launch* was for, unless another one has replaced it.
  std::optional<std::size_t> host_of(std::uint64_t launch) const;

  /// The launcher *launch* ended; see `host_states::on_launcher_ended`.
  host_decisions launcher_ended(std::uint64_t launch, std::string words,
                                bool may_help, time_point now);

  /// An attempt runs on *hosts*; is over; has made progress.
  void attempt_started(const std::vector<std::size_t>& hosts) {
    states_.on_attempt_started(hosts);
  }
  host_decisions attempt_ended(time_point now) {
    return left(states_.on_attempt_ended(now));
  }
  void progressed() noexcept { states_.on_progress(); }

  /// An attempt is to start: `start_with_hosts` once all are here, or, if
  /// *at_once*, enough of them; or `too_few_hosts` after the join limit.
  host_decisions gather(time_point now, bool at_once = false);

  /// The hosts that an attempt could use now.
  std::vector<std::size_t> usable() const { return states_.usable(); }

  /// To be called each `next_check`.
  host_decisions check(time_point now);
  host_limits::duration next_check() const { return states_.next_check(); }

  /// Time after which a host that is silent has been lost.
  host_limits::duration loss_limit() const noexcept {
    return limits_.host_timeout + 3 * limits_.tick;
  }

  /// Which hosts an attempt waits for, and where their agents connect.
  std::string waiting_text() const;

  /// As people know it: "h2", or "host 1" before any agent has come.
  const std::string& name(std::size_t host) const { return hosts_[host].name; }

  /// The latest launch of its agent; 0: there was none.
  std::uint64_t launch_of(std::size_t host) const {
    return hosts_[host].launch;
  }

  bool is_ready(std::size_t host) const { return hosts_[host].is_ready; }

  /// Whether its agent is one that someone else has started.
  bool is_guest(std::size_t host) const { return hosts_[host].is_guest; }

  /// The number of hosts; it grows with guests.
  std::size_t size() const noexcept { return hosts_.size(); }

  /// Most ranks of a host in an elastic run, as far as its agent holds them.
  int slots(std::size_t host) const { return hosts_[host].room.ranks; }

private:
  struct host_record {
    std::string name;
    bool is_named = false; ///< By an agent.
    std::optional<std::uint64_t> incarnation;
    bool is_ready = false;
    time_point admitted{}; ///< It checks its host since then.
    std::uint64_t launch = 0;
    int planned = 1;          ///< Slots, if it holds what their ranks claim.
    host_room room{1};        ///< Of its agent.
    bool is_launched = false; ///< By this driver.
    bool is_guest = false;    ///< Its agent is none that this driver launched.
  };

  host_roster(std::vector<host_states::host> hosts, agent_facts own,
              host_limits limits, std::string addresses, random_function random,
              bool launches, const std::vector<int>& slots);

  host_decisions noted(host_decisions x);
  /// The same after hosts were let go, which have no agents then.
  host_decisions left(host_decisions x);
  expected<std::size_t> host_for(const agent_facts& x) const;
  expected<std::size_t> host_for_launched(const agent_facts& x) const;
  /// `size()` if it is a further host.
  expected<std::size_t> host_for_guest(const agent_facts& x) const;
  /// What the host of *x* can hold of *planned* ranks.
  host_room room_on(const agent_facts& x, int planned) const;
  /// Slots of a further host: as many as the largest of the others has, since
  /// hosts of one run are alike.
  int slots_of_guest() const;
  /// The host of the agent *incarnation*.
  std::optional<std::size_t> host_with(std::uint64_t incarnation) const;
  /// The host without an agent that suits one best, by *fit_of*.
  template <class Function>
  std::optional<std::size_t> free_host(Function fit_of) const;
  bool has_room() const;
  void add_guest();
  void assign(std::size_t host, const agent_facts& x, time_point now);
  void end_long_checks(time_point now, host_decisions& out);
  error all_taken() const;

  agent_facts own_;
  host_limits limits_;
  bool launches_; ///< Agents are launched, and do not come by themselves.
  std::string addresses_;
  std::vector<host_record> hosts_;
  host_states states_;
};

} // namespace troupe::internal
