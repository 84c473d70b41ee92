#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/process/rank_snapshot.hpp"
#include "troupe/runtime/report/rank_meetings.hpp"
#include "troupe/runtime/report/rank_wait.hpp"
#include "troupe/runtime/values/run_status.hpp"

// What snapshots of ranks mean. *ranks* has one entry per rank, in order.

namespace troupe::internal {

/// A rank whose collectives have failed does not wait in one.
collective_calls collective_calls_of(const rank_snapshot& x);

/// Whether the loop waits for the driver where no message says so.
bool asks_driver(const rank_snapshot& x);

/// Whether the rank has left its group, by itself and not because others had.
bool has_left(const rank_snapshot& x);

/// Ranks that have entered fewer collectives than *rank*.
std::vector<int> late_in_collectives(const std::vector<rank_snapshot>& ranks,
                                     int rank);

/// Whether *rank* is in a collective and none is missing there or behind, as in
/// `collective_wait`: what it waits for comes from other hosts, or over Gloo.
bool waits_for_data(const std::vector<rank_snapshot>& ranks, int rank);

/// Whether *rank* is at the start of its group, and all have come there: what
/// it waits for are connections to other hosts, and that has a limit of its
/// own.
bool waits_for_connections(const std::vector<rank_snapshot>& ranks, int rank);

/// How far the loop is in its pass. Nothing before the first batch is done:
/// there is no pace yet.
std::optional<epoch_progress> progress_of(const rank_snapshot& x,
                                          moment::clock::time_point now);

/// Where a rank is and for how long, as people call it; *call* is what it
/// blocks in (`rank_meetings::call_of`).
std::string place_of(const rank_snapshot& x, const std::string& call,
                     moment::clock::time_point now);

/// Who waits for whom, in the calls that *meetings* knows and beyond them.
std::vector<rank_wait> waits_of(const rank_meetings& meetings,
                                const std::vector<rank_snapshot>& ranks,
                                const std::vector<loop_place>& loops);

} // namespace troupe::internal
