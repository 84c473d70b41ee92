#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/meeting_kind.hpp"
#include "troupe/runtime/report/rank_wait.hpp"

namespace troupe {

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

  /// Sequence of the call that ranks are in or come to next.
  std::uint64_t next_sequence() const noexcept { return next_; }

private:
  struct rank_slot {
    std::optional<meeting_kind> here;
    bool ended = false;
  };

  bool is_rank(int rank) const noexcept;
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

} // namespace troupe
