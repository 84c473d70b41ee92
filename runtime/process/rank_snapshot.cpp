#include "troupe/runtime/process/rank_snapshot.hpp"

#include <algorithm>
#include <tuple>

#include "troupe/runtime/process/shared_segment.hpp"

namespace troupe::internal {

namespace {

using time_point = moment::clock::time_point;

time_point time_of(moment::clock::rep ticks) {
  return time_point{moment::clock::duration{ticks}};
}

/// When a rank came to *place*; nothing if it is not there.
std::optional<moment> moment_of(const std::atomic<moment::clock::rep>& place) {
  auto since = place.load(std::memory_order_relaxed);
  return since == 0 ? std::nullopt : std::optional{moment{time_of(since)}};
}

pass_snapshot pass_of(const loader_pass& x) {
  constexpr auto relaxed = std::memory_order_relaxed;
  return {x.epoch.load(relaxed),
          x.batches.load(relaxed),
          x.taken.load(relaxed),
          {time_of(x.begun.load(relaxed))}};
}

rank_snapshot snapshot_of(int rank, const rank_activity& a) {
  constexpr auto relaxed = std::memory_order_relaxed;
  rank_snapshot x;
  x.rank = rank;
  // In this order: a rank calls a collective before it awaits it.
  x.awaited = a.awaited.load(std::memory_order_acquire);
  x.failed = a.failed.load();
  x.called = a.called.load();
  x.collectives = a.collectives.load();
  x.reported = a.reported.load();
  x.counts_calls = a.uncounted.load() == 0;
  x.in_data_loader = moment_of(a.in_data_loader);
  x.at_store = moment_of(a.at_store);
  x.at_start = moment_of(a.at_start);
  x.asks_driver = moment_of(a.asks_driver);
  x.at_device = moment_of(a.at_device);
  x.in_collective = moment_of(a.in_collective);
  x.pass = pass_of(a.pass);
  x.came_to_start = a.came_to_start.load() != 0;
  x.left_group = a.left_group.load() != 0;
  x.gave_up = a.gave_up_collective();
  x.waited = a.waited.load(relaxed);
  return x;
}

} // namespace

std::vector<rank_snapshot> snapshots_of(const shared_segment& segment,
                                        int first, bool has_more) {
  std::vector<rank_snapshot> result;
  // Collectives that each has entered, steps in all of them, and whether it has
  // left the last one.
  std::vector<std::tuple<std::uint64_t, std::uint32_t, bool>> places;
  for (int i = 0; i < segment.ranks(); ++i) {
    auto& shown = segment.rank(i);
    auto& x = result.emplace_back(snapshot_of(first + i, shown.activity));
    // Bit 0 does not count steps. Groups without shared memory have none.
    auto progress = shown.progress.load(std::memory_order_relaxed);
    places.emplace_back(x.collectives, progress >> 1, !x.in_collective);
  }
  auto furthest = std::ranges::max(places);
  for (std::size_t i = has_more ? 1 : 0; i < result.size(); ++i)
    result[i].is_behind = result[i].in_collective && std::get<1>(places[i]) > 0
                          && places[i] < furthest;
  return result;
}

} // namespace troupe::internal
