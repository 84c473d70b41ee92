#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/rank_wait.hpp"
#include "troupe/runtime/report/report.hpp"

namespace troupe::internal {

/// Pairs up the reports of one attempt by index until every rank has sent its
/// own.
///
/// Ranks run at their own pace: report 7 of rank 0 may arrive long before
/// report 7 of rank 3. Invariants (the tests cite them by name):
///   RP-1  A batch has one entry per rank, ordered by rank.
///   RP-2  Batches come in order of index, without gaps, whatever the order of
///         arrival between ranks.
///   RP-3  A report that can never be paired is an error that names the ranks.
class report_pairing {
public:
  using time_point = rank_wait::time_point;

  report_pairing(int world_size, std::uint64_t first_index);

  /// Takes *x*; returns the batch it completes, if it does. `ec::protocol`: no
  /// such rank, an index that is not the rank's next, a rank whose loop has
  /// ended or that is too far ahead. `ec::rank_failed`: the report of a rank
  /// whose loop has ended is missing. `ec::conflict`: the ranks' parts do not
  /// form one checkpoint. After an error the attempt is over.
  expected<std::optional<report_batch>> add(rank_report x, time_point now);

  /// The loop of *rank* returned. `ec::rank_failed` if others already wait with
  /// a report that it never sent.
  expected<void> loop_ended(int rank);

  /// Index of the next batch.
  std::uint64_t next_index() const noexcept { return next_; }

  /// Reports that *rank* has sent in this attempt; 0 if there is no such rank.
  std::uint64_t reports_of(int rank) const;

  /// When the last batch was complete.
  time_point last_release() const noexcept { return last_release_; }

private:
  struct arrival {
    rank_report report;
    time_point at;
  };

  struct rank_queue {
    std::deque<arrival> pending;
    std::uint64_t sent = 0;
    bool ended = false;
  };

  expected<void> admit(const rank_report& x) const;
  expected<void> check_ended() const;
  report_batch release(time_point now);

  std::vector<rank_queue> ranks_;
  std::uint64_t first_;
  std::uint64_t next_;
  time_point last_release_{};
};

} // namespace troupe::internal
