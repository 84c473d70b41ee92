#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/trainers/train_loop.hpp"

namespace troupe::internal {

struct host_plan;
struct inheritance;

/// Everything that defines a run.
struct run_request {
  scaling_config scaling;
  run_config run;
  train_loop loop;
  /// Of `find_hosts`; nullptr: no agents are launched.
  std::shared_ptr<const host_plan> hosts;
  /// The folder with the tickets of a driver whose agents come by themselves,
  /// or the file with its own; empty: it makes them.
  fs::path tickets;
  bool publishes_ticket = false; ///< For the other processes of mpirun.
  /// `scaling.agents` is how many there are, not how many the user wants: some
  /// may have no ranks.
  bool has_found_agents = false;
  /// Hosts that were found, and get no ranks: in a run of a fixed size, or of
  /// ranks that are threads.
  int unused_hosts = 0;
  /// What its ranks have from the program; nullptr: what that has when the run
  /// starts.
  std::shared_ptr<const inheritance> inherited;
  /// How many such runs, this one included, have the cores of this host
  /// together.
  int runs_at_once = 1;
};

/// Finds the hosts on which the run's agents are launched: those of the config,
/// the command line or a job. Then `num_workers` is the number of all ranks.
/// Plans no hosts if agents come by themselves. If ranks are threads, refuses
/// other hosts that are given.
expected<void> find_hosts(run_request& x);

/// The ranks of each host of the run, this one first.
std::vector<host_share> shares_of(const run_request& x);

/// Most ranks on each host of the run, this one first.
std::vector<int> slots_of(const run_request& x);

/// CUDA_VISIBLE_DEVICES as the ranks of *x* on this host have it.
std::optional<std::string> visible_devices_of(const run_request& x);

/// What the ranks of *x* on this host have of it, if no other run has any.
inline host_resources resources_for(const run_request& x) {
  return local_resources(visible_devices_of(x));
}

/// Whether ranks are threads of this process.
inline bool runs_here(const scaling_config& x) {
  return x.num_workers == 0 || x.where == placement::in_process;
}

/// The number of ranks, of an elastic run the most: one without workers.
inline int world_size_of(const scaling_config& x) {
  return std::max(x.num_workers.max, 1);
}

/// Largest config of a loop that runs in processes, as cereal writes it: it
/// must fit into one message with the rest.
inline constexpr std::size_t max_config_bytes = 3 * 1024 * 1024;

/// Refuses requests that can never work on this host, before anything is
/// started or written.
expected<void> validate(const run_request& x);

/// A request with its hosts, which is valid and resolved.
struct prepared_request : run_request {};

/// Finds the hosts of *x*, validates it and resolves its config. Opens standard
/// descriptors that are closed, before files of the run get their numbers.
/// Never throws.
expected<prepared_request> prepare(const run_request& x) noexcept;

} // namespace troupe::internal
