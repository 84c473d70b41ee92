#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <caf/result.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/group_calls.hpp"
#include "troupe/actors/group_core.hpp"
#include "troupe/actors/group_ending.hpp"
#include "troupe/actors/group_waits.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/worker_group_args.hpp"

namespace troupe::internal {

/// What the WORKER GROUP remembers between messages: its hosts, its driver and
/// the attempt under way, which its parts share (`group_core`), and whether an
/// attempt waits for hosts. It starts attempts, and lets ranks leave in time
/// for what is to come; its parts do the rest.
struct worker_group_state : group_core {
  static inline constexpr auto name = "worker-group";

  using pointer = worker_group_actor::stateful_pointer<worker_group_state>;

  void set_up(pointer own, worker_group_args given, host_roster roster);

  // -- an attempt starts

  void start(const start_attempt& x, driver_actor from);
  /// Enough hosts have come: begins the attempt on *chosen* ones.
  void begin(const start_attempt& x, const std::vector<std::size_t>& chosen);
  /// Too few have come.
  void give_up(const too_few_hosts& x);
  void start_on(std::size_t host);
  /// Ends the attempt if ranks are not up in time.
  void watch_start();
  void launched(const rank_launched& x);
  caf::result<void> ready(rank_ready& x);

  // -- it is to end

  void stop(const stop_attempt& x);
  void preempt(const preempt_attempt& x);
  /// A host is about to leave: its ranks' last checkpoints come before.
  void note_host(const host_notice& x);
  /// Whether a loop on *host* is not over: its last checkpoint may be to come.
  bool has_loops(std::size_t host) const;
  /// Lets all ranks leave after one of their reports, within *grace*.
  void let_leave(std::string why, std::chrono::milliseconds grace);
  /// A host is lost, for *why*. Returns whether one of its ranks has failed for
  /// that.
  bool lose(const host_lost& x, const std::string& why);

  std::optional<start_attempt> gathering;  ///< It waits for hosts.
  bool has_begun = false;                  ///< An attempt.
  group_ending ending{*this};              ///< Of ranks, and of the attempt.
  group_waits waits{*this, ending};        ///< Of ranks for each other.
  group_calls calls{*this, ending, waits}; ///< Reports and barriers.
};

/// Behavior of the WORKER GROUP actor; *hosts* as the run begins. An exit
/// message ends its ranks first. The agents of its hosts end with it.
worker_group_actor::behavior_type worker_group(worker_group_state::pointer self,
                                               worker_group_args args,
                                               host_roster hosts);

} // namespace troupe::internal
