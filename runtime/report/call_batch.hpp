#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/runtime/report/rank_meetings.hpp"
#include "troupe/runtime/report/report.hpp"

namespace troupe::internal {

/// Follows the calls of one host's ranks, and decides when their agent passes
/// new ones on to the worker group: together, so that a report or barrier costs
/// one message per host. Ranks are counted from 0 on their host.
///
/// A call returns true if what came so far is passed on at once:
///   CB-1  The ranks' next report is whole: all have sent it.
///   CB-2  All ranks block.
///   CB-3  Ranks block in different kinds of calls, so they may never meet.
///   CB-4  The call is not the rank's next: the group refuses it.
///   CB-5  A rank is not up yet, or calls must not be held at all.
///   CB-6  A rank blocks although the loop of another has ended, which it may
///         wait for: the group refuses that.
/// Otherwise, ranks whose loops have ended do not count. What is held is passed
/// on before anything else that the agent sends, such as what ranks show, for
/// which the group asks about once a second.
class call_batch {
public:
  /// With *holds* false, every call is passed on at once.
  call_batch(int ranks, std::uint64_t first_report, bool holds = true,
             int reports_ahead = max_reports_ahead);

  void came_up(int rank) { at(rank).is_up = true; }

  /// With *waits* the rank blocks until its report is answered, otherwise while
  /// more than `reports_ahead` are not.
  bool report(int rank, std::uint64_t index, bool waits);

  /// The rank blocks until all that it has sent is answered.
  bool await_reports(int rank);

  bool arrive(int rank, std::uint64_t sequence, meeting_kind kind);

  void loop_ended(int rank) { at(rank).is_over = true; }

  /// Report *index* of all ranks was answered.
  void answered(std::uint64_t index);

  /// The barrier or broadcast was answered.
  void released();

  /// Whether *rank* blocks in a report, barrier or broadcast.
  bool blocks(int rank) const {
    auto& x = ranks_.at(static_cast<std::size_t>(rank));
    return x.report || x.meeting;
  }

private:
  struct rank_slot {
    std::uint64_t sent = 0;              ///< Reports.
    std::optional<std::uint64_t> report; ///< Blocks until it is answered.
    std::optional<meeting_kind> meeting; ///< Blocks in it.
    bool is_up = false;
    bool is_over = false;
  };

  rank_slot& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  void block(rank_slot& x, std::uint64_t report);
  /// The index that all ranks have reached.
  std::uint64_t common() const;
  bool is_due() const;

  std::vector<rank_slot> ranks_;
  std::uint64_t first_;
  std::uint64_t answered_; ///< Index of the next report to be answered.
  std::uint64_t ahead_;
  std::uint64_t next_meeting_ = 0;
  bool holds_;
};

} // namespace troupe::internal
