#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/process/rank_snapshot.hpp"
#include "troupe/runtime/report/hang_monitor.hpp"
#include "troupe/runtime/report/idle_time.hpp"
#include "troupe/runtime/report/rank_meetings.hpp"
#include "troupe/runtime/report/rank_wait.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/report/straggler_monitor.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// What the ranks of one attempt show, and what follows from that: who waits
/// for whom, which ranks hang, which are slow, and how far the loop is.
///
/// *meetings* are the calls that ranks of the attempt block in. *now* is by the
/// clock of deadlines; *real* is by one that shows how long the driver stood
/// still.
class attempt_monitor {
public:
  using time_point = rank_wait::time_point;

  struct limits {
    std::optional<std::chrono::milliseconds> report; ///< `report_timeout`.
    std::optional<std::chrono::milliseconds> hang;   ///< `hang_timeout`.
    /// Ranks are threads, of which no vitals are known.
    bool in_process = false;
  };

  /// One entry of *have_gpus* per rank.
  attempt_monitor(std::vector<bool> have_gpus, limits x);

  // -- what ranks show

  /// All ranks are up.
  void begin(time_point real) { last_check_ = real; }

  /// A host has shown its *ranks*. If some of them were *examined*, only the
  /// vitals count: all else that waits are judged by is of one look.
  void learn(const std::vector<rank_snapshot>& ranks, bool examined);

  /// The loop of *rank* has ended; *ranks* are those of its host at that
  /// moment.
  void loop_ended(int rank, const std::vector<rank_snapshot>& ranks,
                  time_point now);

  /// *rank* comes with a report, and has waited in collectives for *ticks*.
  void waited(int rank, std::int64_t ticks) {
    seen_[static_cast<std::size_t>(rank)].waited = ticks;
  }

  /// After a look: finds the ranks that a signal has stopped.
  void look_for_stopped(time_point now);

  /// At the last look, by rank.
  const std::vector<rank_snapshot>& snapshots() const noexcept { return seen_; }
  const rank_snapshot& seen(int rank) const {
    return seen_[static_cast<std::size_t>(rank)];
  }

  /// When the loop of *rank* ended.
  const std::optional<time_point>& loop_end(int rank) const {
    return loops_[static_cast<std::size_t>(rank)].ended;
  }

  // -- checks, about every `interval`

  hang_monitor::duration interval() const noexcept { return hangs_.interval(); }

  /// Ranks whose vitals are needed to judge: those that others wait for.
  std::vector<int> ranks_to_examine(const rank_meetings& meetings) const;

  /// Ranks that wait for each other in different calls, some in collectives.
  /// Those show so in shared memory alone, so that someone has to look. Another
  /// thread of a rank may be about to call the collective, unless the rank is
  /// idle.
  std::optional<rank_mismatch> mismatch(const rank_meetings& meetings,
                                        time_point now);

  /// Looks how far rank 0 is in its epoch at the moment *at*, by the clock of
  /// snapshots. Returns whether `progress` is of another batch now.
  bool advance(moment::clock::time_point at);
  const std::optional<epoch_progress>& progress() const noexcept {
    return progress_;
  }

  /// Judges all waits.
  hang_verdict judge(const rank_meetings& meetings, time_point now,
                     time_point real);

  /// Whether a wait that was named is still under way.
  bool has_named_wait() const noexcept { return hangs_.has_named(); }

  /// Where *rank* is, and its vitals if those may show that it hangs.
  rank_look look_at(int rank, const rank_meetings& meetings,
                    time_point now) const;

  // -- reports

  /// Every rank has reported. Returns a sentence that names slow ranks, if
  /// there are any.
  std::optional<std::string> stepped(const report_batch& batch);

  /// Ranks were at work while the driver was stopped: none of that time counts
  /// as waited.
  void leave_out_standstill(report_batch& batch, time_point now,
                            time_point real) const;

private:
  bool knows(int rank) const noexcept {
    return rank >= 0 && static_cast<std::size_t>(rank) < seen_.size();
  }
  std::vector<rank_wait> waits(const rank_meetings& meetings) const;
  std::vector<collective_calls> calls() const;
  /// Busy if it has a GPU, which works while its rank sleeps.
  std::optional<process_vitals> vitals_of(int rank) const;

  std::vector<bool> have_gpus_; // by rank, as all that follow
  limits limits_;
  std::vector<rank_snapshot> seen_;
  std::vector<loop_place> loops_;
  /// How long ranks have blocked in a call while others wait for them in a
  /// collective.
  std::vector<idle_time> idle_in_calls_;
  std::vector<std::int64_t> waited_; ///< At the last report.
  hang_monitor hangs_;
  straggler_monitor stragglers_;
  std::optional<time_point> last_check_; ///< As *real*.
  std::optional<epoch_progress> progress_;
};

} // namespace troupe::internal
