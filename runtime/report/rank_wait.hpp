#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/rank_names.hpp"

namespace troupe::internal {

/// Ranks that wait for other ranks.
struct rank_wait {
  using time_point = std::chrono::steady_clock::time_point;

  std::string what;         ///< What they wait in, "report 3" or "barrier 2".
  std::vector<int> waiting; ///< Ranks that have arrived, ascending.
  std::vector<int> missing; ///< Ranks that are not, ascending. Empty: all are
                            ///< there, and it does not end.
  time_point since;         ///< When the first rank began to wait for them.
  /// By `report_timeout`. Collectives have limits of their own.
  bool is_limited = true;

  bool operator==(const rank_wait&) const = default;
};

/// A rank's position in the collectives of its data plane.
struct collective_place {
  bool inside = false;         ///< In the last one that it entered.
  rank_wait::time_point since; ///< When it entered that.
  std::uint64_t entered = 0;   ///< How many so far.
  bool is_behind = false;      ///< Inside, where others wait for it.
};

/// Ranks that wait in collectives, and those that are behind or have not
/// entered the last of these yet; one entry of *ranks* per rank. A rank may
/// wait in an earlier collective than others, for data that they have sent. If
/// all wait, none is missing, and the wait began with the last of them. Nothing
/// if no rank waits.
std::optional<rank_wait>
collective_wait(const std::vector<collective_place>& ranks);

/// A rank's position at the start of its group, which needs all ranks.
struct start_place {
  bool came = false;                          ///< It has been there, or is.
  std::optional<rank_wait::time_point> since; ///< When it began to wait there.
};

/// Ranks that wait at the start of their group, and those that have not come
/// and are not in *elsewhere*, where they wait for something themselves; one
/// entry of *ranks* per rank. Nothing if there are none of either.
std::optional<rank_wait> start_wait(const std::vector<start_place>& ranks,
                                    const std::vector<int>& elsewhere);

/// Whether a rank has ended its loop, or is stopped.
struct loop_place {
  std::optional<rank_wait::time_point> ended; ///< When its loop ended.
  std::optional<rank_wait::time_point>
    stopped; ///< Since when a signal has stopped it.
};

/// The run itself waits for the end of all loops: for ranks that a signal has
/// stopped, and for the last one that is not in *elsewhere*, where it waits for
/// something itself. Leaves out ranks that are already missing in one of
/// *waits*. One entry of *ranks* per rank. Nothing if no rank is left.
std::optional<rank_wait> end_wait(const std::vector<loop_place>& ranks,
                                  const std::vector<int>& elsewhere,
                                  const std::vector<rank_wait>& waits);

/// Finds the ranks that cause *waits*. A missing rank that waits itself, in one
/// of *waits* or *elsewhere*, is not to blame and is removed. If a wait would
/// have none left, its ranks wait for each other in a circle: then the ranks of
/// the circle that a signal has *stopped* are to blame. If there are none, the
/// wait stays unchanged.
void blame_awaited(std::vector<rank_wait>& waits,
                   const std::vector<int>& elsewhere,
                   const std::vector<int>& stopped);

/// "report 3: rank 1 is missing for 30 s, ranks 0, 2 wait".
std::string to_string(const rank_wait& x, rank_wait::time_point now);

/// `ec::protocol` if *rank* is not one of the *world_size* ranks.
expected<void> check_rank(int rank, std::size_t world_size);

} // namespace troupe::internal
