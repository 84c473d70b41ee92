#pragma once

#include <functional>

#include "tests/support/torch_ranks.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"

namespace troupe::internal::test {

/// Runs *body* on *size* ranks, each a thread with a place in one local group,
/// and returns what each threw (empty if nothing).
inline std::vector<std::string>
run_on_planes(int size,
              const std::function<void(int, torch_data_plane)>& body) {
  local_meeting_place place{size};
  return run_threads(size, [&](int rank) {
    auto group = size == 1 ? nullptr : place.group(0, rank, size);
    body(rank, {group, at::kCPU});
  });
}

/// The collectives that the ranks of *plane* have begun.
inline std::uint64_t collectives_of(const torch_data_plane& plane) {
  return plane.group->getBackend(at::kCPU)->getSequenceNumberForGroup();
}

} // namespace troupe::internal::test
