#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/process/process_vitals.hpp"
#include "troupe/runtime/process/rank_activity.hpp"

namespace troupe::internal {

class shared_segment;

/// A moment on the clock of this host; by default, none. It travels as an age,
/// because the clocks of hosts differ.
struct moment {
  using clock = rank_activity::clock;

  clock::time_point time;

  bool operator==(const moment&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, moment& x) {
  using std::chrono::nanoseconds;
  auto age = [&x] {
    auto is_none = x == moment{};
    return is_none ? std::int64_t{-1}
                   : nanoseconds{moment::clock::now() - x.time}.count();
  };
  auto set_age = [&x](std::int64_t ns) {
    x = ns < 0 ? moment{} : moment{moment::clock::now() - nanoseconds{ns}};
    return true;
  };
  return f.object(x).fields(f.field("age", age, set_age));
}

/// How far a loop was in a pass over its data loader; as `loader_pass`.
struct pass_snapshot {
  std::uint64_t epoch = 0;
  std::uint64_t batches = 0; ///< 0: it made none.
  std::uint64_t taken = 0;
  moment begun;
};

TROUPE_INSPECT(pass_snapshot, epoch, batches, taken, begun)

/// What one rank showed its host at one moment, in their shared memory and as a
/// process. As in `rank_activity` where names are the same.
struct rank_snapshot {
  int rank = 0;
  std::optional<moment> in_data_loader;
  std::optional<moment> at_store;
  std::optional<moment> at_start;
  std::optional<moment> asks_driver;
  std::optional<moment> at_device;
  std::optional<moment> in_collective;
  pass_snapshot pass;
  bool came_to_start = false;
  bool left_group = false;
  bool gave_up = false;     ///< Others were missing in its last collective.
  bool counts_calls = true; ///< `called` is meaningful.
  collective_failure failed = collective_failure::none;
  /// Inside a collective, where a rank of its host has got further.
  bool is_behind = false;
  std::uint64_t collectives = 0;
  std::uint64_t called = 0;
  std::uint64_t awaited = 0;
  std::uint64_t reported = 0;
  std::int64_t waited = 0;              ///< Clock ticks.
  bool is_stopped = false;              ///< By a signal.
  bool has_ended = false;               ///< As `rank_launcher::has_ended`.
  std::optional<process_vitals> vitals; ///< If they were asked for.
};

template <class Inspector>
bool inspect(Inspector& f, rank_snapshot& x) {
  auto failed = [&x] { return static_cast<std::uint32_t>(x.failed); };
  auto set_failed = [&x](std::uint32_t value) {
    x.failed = static_cast<collective_failure>(value);
    return x.failed <= collective_failure::others;
  };
  return f.object(x).fields(
    f.field("rank", x.rank), f.field("in_data_loader", x.in_data_loader),
    f.field("at_store", x.at_store), f.field("at_start", x.at_start),
    f.field("asks_driver", x.asks_driver), f.field("at_device", x.at_device),
    f.field("in_collective", x.in_collective), f.field("pass", x.pass),
    f.field("came_to_start", x.came_to_start),
    f.field("left_group", x.left_group), f.field("gave_up", x.gave_up),
    f.field("counts_calls", x.counts_calls),
    f.field("failed", failed, set_failed), f.field("is_behind", x.is_behind),
    f.field("collectives", x.collectives), f.field("called", x.called),
    f.field("awaited", x.awaited), f.field("reported", x.reported),
    f.field("waited", x.waited), f.field("is_stopped", x.is_stopped),
    f.field("has_ended", x.has_ended), f.field("vitals", x.vitals));
}

/// What the ranks of *segment* show now, the first of which is *first* of all
/// ranks; nothing of their processes. *has_more*: other hosts have ranks, too.
///
/// A rank that `is_behind` has taken fewer steps of collectives than another of
/// its host, or is in one that the other has left: it waits for none of these.
/// The first of one of several hosts may wait for another host meanwhile, and
/// does not count as behind.
std::vector<rank_snapshot> snapshots_of(const shared_segment& segment,
                                        int first, bool has_more);

} // namespace troupe::internal
