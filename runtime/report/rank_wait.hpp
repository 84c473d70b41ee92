#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Ranks that wait for other ranks.
struct rank_wait {
  using time_point = std::chrono::steady_clock::time_point;

  std::string what;         ///< What they wait in, "report 3" or "barrier 2".
  std::vector<int> waiting; ///< Ranks that are there, ascending.
  std::vector<int> missing; ///< Ranks that are not, ascending. Empty: all are
                            ///< there, and it does not end.
  time_point since;         ///< When the first began to wait for them.
  /// By `report_timeout`. Collectives have limits of their own.
  bool is_limited = true;

  bool operator==(const rank_wait&) const = default;
};

/// Where a rank stands in the collectives of its data plane.
struct collective_place {
  bool inside = false;         ///< In the last one that it entered.
  rank_wait::time_point since; ///< When it entered that.
  std::uint64_t entered = 0;   ///< How many so far.
  std::uint32_t steps = 0; ///< Steps taken together with the others, if known.
};

/// Ranks that are in a collective, and those that have not come that far yet;
/// one entry of *ranks* per rank. If all are in it, no one is missing, and it
/// began with the last of them. Nothing if no one waits.
std::optional<rank_wait>
collective_wait(const std::vector<collective_place>& ranks);

/// How far a rank is on its way to the end of its loop.
struct loop_place {
  std::optional<rank_wait::time_point> ended; ///< When its loop ended.
  std::optional<rank_wait::time_point>
    stopped; ///< Since when a signal holds it.
};

/// The run itself waits for the end of all loops: for ranks that a signal has
/// stopped, and for the last one that is not in *elsewhere*, where it waits for
/// something itself. Those that *waits* lack are not named again; one entry of
/// *ranks* per rank. Nothing if no one is left.
std::optional<rank_wait> end_wait(const std::vector<loop_place>& ranks,
                                  const std::vector<int>& elsewhere,
                                  const std::vector<rank_wait>& waits);

/// Takes out of what each of *waits* lacks the ranks that wait somewhere
/// themselves, in one of *waits* or for something else in *elsewhere*: they are
/// not to blame. A wait that would lack no one then is one of a circle, and
/// stays as it is.
void blame_awaited(std::vector<rank_wait>& waits,
                   const std::vector<int>& elsewhere);

/// "report 3: rank 1 is missing for 30 s, ranks 0, 2 wait".
std::string to_string(const rank_wait& x, rank_wait::time_point now);

/// "30 s", or "30 ms" below a second.
std::string wait_text(rank_wait::time_point::duration x);

/// "rank 1".
std::string rank_name(int rank);

/// "rank 1" or "ranks 0, 2, 5", at most 16 by number and the rest counted.
std::string rank_list(const std::vector<int>& ranks);

} // namespace troupe
