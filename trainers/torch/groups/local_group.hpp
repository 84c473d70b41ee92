#pragma once

#include <chrono>
#include <utility>

#include "troupe/trainers/torch/groups/memory_group.hpp"
#include "troupe/trainers/torch/groups/segment_collectives.hpp"

namespace troupe::internal {

/// What a `local_group` holds; made before the group above it.
struct local_group_parts {
  local_group_parts(shared_segment segment, int rank)
    : exchange(std::move(segment), rank) {}

  segment_exchange exchange;
  segment_collectives collectives{exchange};
};

/// The process group of ranks on one host, whether threads or processes:
/// collectives on CPU tensors over a shared segment.
class local_group : private local_group_parts, public memory_group {
public:
  /// *timeout* is how long a collective waits for the slowest rank. Records in
  /// *activity* what the loop calls.
  local_group(shared_segment segment, int rank,
              std::chrono::milliseconds timeout,
              const std::shared_ptr<rank_activity>& activity = nullptr)
    : local_group_parts(std::move(segment), rank),
      memory_group("local", local_group_parts::collectives, timeout, activity) {
  }

  ~local_group() override { close(); }
};

} // namespace troupe::internal
