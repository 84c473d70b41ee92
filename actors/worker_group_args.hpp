#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/runtime/hosts/link_credentials.hpp"
#include "troupe/runtime/hosts/world_plan.hpp"

namespace troupe::internal {

/// What stays the same for all attempts of a run.
struct group_plan {
  std::string run_name;
  std::string run_path;
  std::uint64_t run_inode = 0; ///< As in `rank_facts`.
  std::string run_id;
  world_range world; ///< In an attempt.
  resize_policy resize = resize_policy::never;
  bool in_process = false;
  /// Its only rank runs on the thread that waits for the run: that is never
  /// left behind.
  bool on_lent_thread = false;
  std::vector<std::vector<int>> gpus; ///< By local rank.
  /// The same on the driver's host, where other runs may have those of `gpus`.
  std::vector<std::vector<int>> own_gpus;
  std::optional<std::chrono::milliseconds> report_timeout;
  std::optional<std::chrono::milliseconds> hang_timeout;
  std::chrono::milliseconds start_timeout{0};
  std::chrono::milliseconds stop_timeout{0};
  std::chrono::milliseconds exit_timeout{0};
  /// Until a host that is about to leave is gone, if it does not say.
  std::chrono::milliseconds host_grace{0};
  loop_spec loop;
  std::map<std::string, std::string> environment; ///< What ranks get.
  /// What leaders of hosts show each other. Unset if there is one host.
  std::optional<link_credentials> credentials;
  std::string network_interface;    ///< As in `host_accepted`.
  std::vector<int> preempt_signals; ///< The same.

  /// GPUs of local rank *local* on *host*.
  std::vector<int> gpus_of(std::size_t host, std::size_t local) const {
    if (host == 0 && local < own_gpus.size())
      return own_gpus[local];
    return local < gpus.size() ? gpus[local] : std::vector<int>{};
  }
};

/// How the agents of other hosts are launched. The functions must not wait; all
/// are empty if agents come by themselves.
struct agent_launches {
  /// Launches an agent on a host; `agent_launched`, perhaps
  /// `launcher_said`, and `launcher_ended` follow.
  std::function<void(std::size_t host, std::uint64_t launch)> begin;
  /// Its agent is here.
  std::function<void(std::uint64_t launch)> arrived;
  std::function<void(std::uint64_t launch)> end;
};

/// What the WORKER GROUP is given.
struct worker_group_args {
  host_agent_actor agent; ///< Of the driver's host.
  group_plan plan;
  agent_launches launches;
  /// The hosts are of one job: if one is to leave, all are.
  bool leaves_as_one = false;
  std::function<void(std::string)> note; ///< Shows a line about hosts.
  /// Adds an event about hosts to the run's journal.
  std::function<void(std::string_view kind, metrics fields)> journal;
  /// The ranks of a lost host may live on, unseen: see `ranks_lock`.
  std::function<void(const std::string& host)> abandon;
  /// Closes the connection of an agent of another process.
  std::function<void(const host_agent_actor&)> cut_off;
  /// The token that ranks of an attempt join it with; may be empty.
  std::function<std::uint64_t()> token;
  /// Tells how late a timer fires: the driver may have stood still.
  std::function<std::chrono::steady_clock::time_point()> now =
    std::chrono::steady_clock::now;
};

} // namespace troupe::internal
