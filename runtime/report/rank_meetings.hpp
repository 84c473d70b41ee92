#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/rank_wait.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/report/report_pairing.hpp"

namespace troupe::internal {

/// A rank that comes to its barrier or broadcast *sequence*.
struct barrier_arrival {
  int rank = 0;
  std::uint64_t sequence = 0;
  meeting_kind kind = meeting_kind::barrier;
  std::string payload; ///< Counts for rank 0 in a broadcast only.
  error refusal;       ///< Why rank 0 has nothing to broadcast.
};

/// What every rank gets out of a barrier or broadcast.
struct barrier_release {
  std::string payload; ///< Rank 0's; empty for a barrier.
  error refusal;       ///< `ec::none`, or why rank 0 broadcast nothing.
};

/// Gathers the ranks of one attempt for `barrier()` and
/// `broadcast_from_rank_zero()`.
///
/// Calls are counted per rank, both kinds together, from 0: a rank that has
/// left call 4 can only join call 5. A rank waits in at most one call.
class rank_barrier {
public:
  using time_point = rank_wait::time_point;

  explicit rank_barrier(int world_size);

  /// Returns what every waiting rank gets once the last one is here.
  /// `ec::protocol`: no such rank or a sequence that is not its next.
  /// `ec::conflict`: the ranks are in different kinds of calls.
  /// `ec::rank_failed`: the loop of a rank that is missing has ended.
  expected<std::optional<barrier_release>> arrive(barrier_arrival x,
                                                  time_point now);

  /// The loop of *rank* returned. `ec::rank_failed` if others wait for it here.
  expected<void> loop_ended(int rank);

  /// Ranks whose loops returned.
  std::vector<int> ended() const;

  /// The ranks that wait and those they wait for; nothing if no one waits.
  std::optional<rank_wait> waiting() const;

  /// Whether *rank* is in the call that ranks come to.
  bool is_here(int rank) const {
    return ranks_.at(static_cast<std::size_t>(rank)).here.has_value();
  }

  /// How many ranks are in it.
  int arrived() const noexcept { return arrived_; }

  /// The call that ranks are in, such as "barrier 3"; empty if no one waits.
  std::string call_name() const;

private:
  struct rank_slot {
    std::optional<meeting_kind> here;
    bool ended = false;
  };

  expected<void> admit(const barrier_arrival& x) const;
  std::vector<int> ranks_here(meeting_kind kind) const;
  expected<void> check_kinds() const;
  expected<void> check_ended() const;

  std::vector<rank_slot> ranks_;
  int arrived_ = 0;
  std::uint64_t next_ = 0;
  barrier_release release_;
  time_point since_{};
};

/// What the loop of a rank has called beside reports, barriers and broadcasts,
/// as the rank itself shows it.
struct collective_calls {
  std::uint64_t called = 0;  ///< Collectives.
  std::uint64_t awaited = 0; ///< The one that the loop cannot continue without,
                             ///< by that count; 0: none.
  std::uint64_t entered = 0; ///< What people know it by.
  std::uint64_t reported = 0; ///< Index after that of the last report that did
                              ///< not wait.
  bool is_final = true;       ///< By none but the loop's thread so far.
  bool is_idle = true;        ///< No thread works that might call one yet.
};

/// Ranks that can never meet: they block in different calls.
struct rank_mismatch {
  std::vector<int> ranks; ///< All of them, ascending.
  error reason;           ///< `ec::conflict`; names ranks and calls.
};

/// Knows for every rank of one attempt in which report, barrier or broadcast it
/// blocks, and so who waits for whom.
///
/// A rank that blocks in report k needs report k of every rank; one that blocks
/// in barrier n needs every rank in barrier n. Both need all of the others, so
/// ranks are stuck for good if and only if these needs form a cycle:
///   - Barriers alone form none: n opens before anyone can join n + 1.
///   - Reports alone form none: a rank that blocks in report m has sent all
///     reports up to m, so it only needs ranks that have sent fewer.
///   - A rank in barrier n needs every rank that blocks in a report, because
///     none of those can be in barrier n. It closes a cycle if one of them
///     blocks in a report that it has not sent itself. A longer cycle contains
///     such a pair: follow it from a rank in a report to the first rank in a
///     barrier; that one has sent fewer reports than all of those before it.
/// `mismatch` finds that pair. A report without barrier blocks no one until
/// `max_reports_ahead` are under way, and what is being committed lacks no one.
class rank_meetings {
public:
  using time_point = rank_wait::time_point;

  rank_meetings(int world_size, std::uint64_t first_report,
                int reports_ahead = max_reports_ahead);

  /// As `report_pairing::add`. With *waits* the rank blocks until its report is
  /// committed, otherwise while more than `reports_ahead` are not.
  expected<std::optional<report_batch>> add(rank_report x, bool waits,
                                            time_point now);

  /// Report *index* was committed, or refused: no rank blocks in it any more.
  void committed(std::uint64_t index, time_point now);

  /// *rank* blocks until all that it has sent is committed.
  void await_reports(int rank, time_point now);

  /// As `rank_barrier::arrive`.
  expected<std::optional<barrier_release>> arrive(barrier_arrival x,
                                                  time_point now);

  /// The loop of *rank* returned. `ec::rank_failed` if others wait for it.
  expected<void> loop_ended(int rank);

  /// Ranks whose loops returned.
  std::vector<int> ended() const { return calls_.ended(); }

  /// Ranks that wait for each other in different calls.
  std::optional<rank_mismatch> mismatch() const;

  /// The same if some of them wait in collectives, one entry of *ranks* per
  /// rank. All ranks have to call a collective, so two are stuck for good if
  /// one awaits a collective that the other has not called, and the other
  /// blocks in a call that needs the first, with no other thread that is going
  /// to call it.
  std::optional<rank_mismatch>
  mismatch(const std::vector<collective_calls>& ranks) const;

  /// Ranks that block, and the ranks that they wait for: those that block
  /// nowhere. A wait for a commit does not count.
  std::vector<rank_wait> waits() const;
  std::optional<rank_wait> report_wait() const;
  std::optional<rank_wait> barrier_wait() const;

  /// What *rank* blocks in, such as "report 3"; empty: in nothing.
  std::string call_of(int rank) const;

  /// Index of the next batch.
  std::uint64_t next_report() const noexcept { return reports_.next_index(); }

private:
  struct blocked {
    std::uint64_t report; ///< Ends with the commit of this one.
    time_point since;
  };

  int world_size() const noexcept { return static_cast<int>(blocked_.size()); }
  std::uint64_t reports_of(int rank) const { return reports_.reports_of(rank); }
  bool in_barrier(int rank) const { return calls_.is_here(rank); }
  const std::optional<blocked>& block_of(int rank) const {
    return blocked_[static_cast<std::size_t>(rank)];
  }
  void block(int rank, std::uint64_t report, time_point now);
  bool has_sent(int rank, std::uint64_t report) const;
  bool needs(int rank, int other) const;

  report_pairing reports_;
  rank_barrier calls_;
  std::vector<std::optional<blocked>> blocked_; ///< By rank.
  int blocked_ranks_ = 0;
  std::uint64_t first_;
  std::uint64_t committed_; ///< Index of the next report to be committed.
  std::uint64_t ahead_;
  time_point last_commit_{};
};

} // namespace troupe::internal
