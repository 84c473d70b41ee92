#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/rank_snapshot.hpp"
#include "troupe/runtime/report/rank_meetings.hpp"
#include "troupe/runtime/run/attempt_tracker.hpp"

namespace troupe::internal {

/// Decides which ranks are to blame for the failures of an attempt, and when
/// all are to end. A rank that leaves its group lets the collectives of the
/// others fail, which often say so first: their failures are secondary, and
/// wait for the cause.
///
/// *ranks* is what each rank of the attempt showed at the last look.
///
/// Invariants (the tests cite them by name):
///   CS-1  Ranks end once one has failed. An exception waits a moment for the
///         failures of processes that may have caused it.
///   CS-2  Secondary failures wait for `cause_patience`; if a rank has left its
///         group by then, for the limit on exits more, once.
///   CS-3  A rank that has left and whose loop has not ended by then is to
///         blame, unless its process has ended: that end is the cause.
///   CS-4  Secondary failures are to blame as soon as no cause can come.
///   CS-5  A loop that returns while others wait for it breaks a rule, unless
///         all are to end.
class cause_search {
public:
  using duration = std::chrono::milliseconds;
  using snapshots = std::vector<rank_snapshot>;

  /// How long an exception waits for the exit of another rank that may have
  /// caused it: a killed peer shows as a broken connection in the others before
  /// its own end is known.
  static constexpr duration settle_time{20};

  /// How long secondary failures wait for their cause, unless a rank shows that
  /// it has left the others' collectives.
  static constexpr duration cause_patience{2000};

  struct limits {
    duration exit{0}; ///< For a rank that has left its group, to end its loop.
    duration stop{0}; ///< For ranks that are threads, to leave their loops.
    bool in_process = false;
  };

  struct loop_end {
    int rank = 0;
    error reason;             ///< `ec::none`: it returned.
    bool was_stopped = false; ///< It left because it was asked to.
    /// It was in a call that the order to end has answered: it may have learned
    /// of that before.
    bool was_in_call = false;
  };

  /// What follows from a failure.
  struct step {
    enum class kind : std::uint8_t {
      none,
      look, ///< Look at the ranks after `delay`, and call `looked`.
      end,  ///< End all ranks after `delay` for `reason`, within `grace`.
    };

    kind what = kind::none;
    duration delay{0};
    duration grace{0};
    error reason;
  };

  explicit cause_search(limits x) : limits_(x) {}

  /// Records the end of a loop. One that gave up on ranks that are late in
  /// collectives blames those.
  static void loop_ended(attempt_tracker& attempt, rank_meetings& meetings,
                         const loop_end& x, const snapshots& ranks);

  /// There may be another failure. To be called until the end is ordered.
  step failed(attempt_tracker& attempt, const snapshots& ranks,
              const rank_meetings& meetings);

  /// The ranks were looked at, as a step said.
  step looked(attempt_tracker& attempt, const snapshots& ranks,
              const rank_meetings& meetings);

private:
  step end(const attempt_tracker& attempt);
  /// The ranks of `awaited_` that still count as leavers.
  std::vector<int> remaining(const attempt_tracker& attempt,
                             const snapshots& ranks,
                             const rank_meetings& meetings) const;

  limits limits_;
  bool is_settling_ = false;
  bool is_searching_ = false; ///< `looked` is to be called, or was.
  /// The leavers at the first look; none later is waited for.
  std::optional<std::vector<int>> awaited_;
};

} // namespace troupe::internal
