#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "troupe/trainers/ring/join_ring.hpp"
#include "troupe/trainers/torch/groups/hierarchical_collectives.hpp"
#include "troupe/trainers/torch/groups/memory_group.hpp"

namespace troupe::internal {

/// The hosts of an attempt, and this host's place in their ring.
struct host_places {
  std::vector<ring_host> hosts;
  std::size_t index = 0;
  std::unique_ptr<host_ring> ring; ///< Of the leader alone.
};

/// How the ranks of several hosts find each other: leaders publish their ports
/// in a store. Rank 0 collects them, so that each other rank reads one key.
/// Ranks are numbered host by host.
class host_meeting {
public:
  struct args {
    int rank = 0;
    int local_rank = 0;
    int local_ranks = 1;
    int ranks = 1;
    std::string host;    ///< For messages.
    std::string address; ///< Of this host, for the others; a number.
  };

  /// If this rank leads, opens its port and publishes it in *store*.
  static expected<host_meeting> begin(c10d::Store& store, args x,
                                      const join_ring_args& how);

  /// Learns of all hosts, which must have begun, and joins the ring. A rank
  /// that does not lead gets hosts without names.
  expected<host_places> join(c10d::Store& store, const join_ring_args& how);

private:
  explicit host_meeting(args x) : args_(std::move(x)) {}

  bool leads() const noexcept { return args_.local_rank == 0; }
  bool is_alone() const noexcept { return args_.local_ranks == args_.ranks; }
  expected<std::vector<ring_leader>> read_leaders(c10d::Store& store) const;

  args args_;
  ring_port port_;
};

/// What a `hierarchical_group` holds; made before the group above it.
struct hierarchical_group_parts {
  hierarchical_group_parts(shared_segment segment, int local_rank,
                           host_places places)
    : exchange(std::move(segment), local_rank,
               places.hosts[places.index].first_rank),
      collectives(exchange, std::move(places.hosts), places.index,
                  std::move(places.ring)) {}

  segment_exchange exchange;
  hierarchical_collectives collectives;
};

/// The process group of ranks on several hosts: shared memory inside a host,
/// a ring of the hosts' leaders between them; CPU tensors only.
class hierarchical_group : private hierarchical_group_parts,
                           public memory_group {
public:
  /// *segment* is that of this host's ranks. As `local_group` otherwise.
  hierarchical_group(shared_segment segment, int local_rank, host_places places,
                     std::chrono::milliseconds timeout,
                     const std::shared_ptr<rank_activity>& activity = nullptr)
    : hierarchical_group_parts(std::move(segment), local_rank,
                               std::move(places)),
      memory_group("hierarchical", hierarchical_group_parts::collectives,
                   timeout, activity) {}

  ~hierarchical_group() override { close(); }
};

} // namespace troupe::internal
