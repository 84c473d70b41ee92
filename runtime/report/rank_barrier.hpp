#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/collective_kind.hpp"
#include "troupe/runtime/report/rank_wait.hpp"

namespace troupe {

/// Gathers the ranks of one attempt for `barrier()` and
/// `broadcast_from_rank_zero()`.
///
/// Calls are counted per rank, both kinds together, from 0: a rank that has
/// left call 4 can only join call 5. A rank waits in at most one call.
class rank_barrier {
public:
  using time_point = rank_wait::time_point;

  explicit rank_barrier(int world_size);

  /// Rank *rank* is in its call *sequence*; *payload* counts for rank 0 in a
  /// broadcast only. Returns what every waiting rank gets once the last one is
  /// here: rank 0's payload, empty for a barrier. `ec::protocol`: no such rank
  /// or a sequence that is not its next. `ec::conflict`: the ranks are in
  /// different kinds of calls. `ec::rank_failed`: the loop of a rank that is
  /// missing has ended.
  expected<std::optional<std::string>> arrive(int rank, std::uint64_t sequence,
                                              collective_kind kind,
                                              std::string payload,
                                              time_point now);

  /// The loop of *rank* returned. `ec::rank_failed` if others wait for it here.
  expected<void> loop_ended(int rank);

  /// The ranks that wait and those they wait for; nothing if nobody waits.
  std::optional<rank_wait> waiting() const;

  /// Sequence of the call that ranks are in or come to next.
  std::uint64_t next_sequence() const noexcept { return next_; }

private:
  struct rank_slot {
    std::optional<collective_kind> here;
    bool ended = false;
  };

  bool is_rank(int rank) const noexcept;
  std::vector<int> ranks_here(collective_kind kind) const;
  expected<void> check_kinds() const;
  expected<void> check_ended() const;

  std::vector<rank_slot> ranks_;
  int arrived_ = 0;
  std::uint64_t next_ = 0;
  std::string payload_;
  time_point since_{};
};

} // namespace troupe
