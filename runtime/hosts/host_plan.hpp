#pragma once

#include <string>
#include <vector>

#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/launch_environment.hpp"

namespace troupe::internal {

/// A host of a run, with ranks that are numbered one after the other.
struct planned_host {
  std::string name; ///< As its launcher knows it; the first one needs none.
  int first_rank = 0;
  int ranks = 0;
  int slots = 0; ///< Most ranks in an attempt of an elastic run.

  bool operator==(const planned_host&) const = default;
};

/// The hosts of a run whose agents the driver launches.
struct host_plan {
  launch_engine engine = launch_engine::none;

  /// The driver's own host comes first; it has no ranks if it is not one of the
  /// hosts that were given. Empty: all ranks are on this host.
  std::vector<planned_host> hosts;

  worker_count ranks = 0; ///< On all hosts.
  int unused = 0;         ///< Hosts that were given and get no ranks.
};

/// Puts *num_workers* ranks, or *workers_per_host* on each host if that is not
/// 0, on the hosts of *found*: as evenly as possible, none with more than its
/// slots, and the first hosts have more. If there are fewer ranks than hosts,
/// the last hosts are not used.
///
/// An elastic run has all hosts: *min_hosts* of them, or *num_workers* is a
/// range. Their ranks are those of its largest world. A host whose slots are
/// not known has room for as many as the largest of its kind has there.
///
/// Numbers are within `validate_counts`. `ec::invalid_config` if the hosts have
/// too few slots.
expected<host_plan> plan_hosts(const launch_environment& found,
                               worker_count num_workers, int workers_per_host,
                               int min_hosts = 0);

} // namespace troupe::internal
