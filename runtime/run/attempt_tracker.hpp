#pragma once

#include <map>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/values/run_error.hpp"

namespace troupe::internal {

/// Follows the ranks of one attempt from launch to end and decides what a
/// rank's end means.
///
/// Invariants:
///   AT-1  A rank that ended after `order_end` because of it has not failed.
///   AT-2  A rank that was gone before its loop ended is a failure with the
///         cause of its process.
///   AT-3  The attempt is over once every rank that was launched is gone.
///   AT-4  A rank whose loop failed because of other ranks does not count as a
///         failure if another rank does.
///   AT-5  A rank that does not end when it is killed is not the reason why the
///         attempt ended.
class attempt_tracker {
public:
  explicit attempt_tracker(int world_size);

  void launched(int rank, int pid);
  void launch_failed(int rank, const error& reason);
  void ready(int rank, std::string host);

  /// The loop of *rank* ended; *by_order* if it was asked to end, or would have
  /// been. *secondary*: others had ended one of its collectives before, so the
  /// cause lies with one of them.
  void loop_ended(int rank, const error& reason, bool by_order,
                  bool secondary = false);

  /// The process or thread of *rank* is gone.
  void exited(int rank, const process_exit& cause);

  /// *rank* is there but does not answer any more.
  void lost(int rank, std::string why);

  /// *rank* broke a rule that all ranks share; *what* names it.
  void record_misuse(int rank, std::string what);

  /// *rank* took longer than a limit; *what* names it.
  void timed_out(int rank, std::string what);

  /// Counts *rank* as gone although it is still there: a thread, which cannot
  /// be killed, or a process of a host that is lost.
  void give_up(int rank);

  /// The same for a process that does not end when it is killed (AT-5); *why*
  /// names that.
  void leave_behind(int rank, std::string why);

  /// From now on ranks end because they are asked to, except for those that
  /// have *ended* already, whatever cause is known of them later.
  void order_end(const std::vector<int>& ended = {});

  int world_size() const noexcept { return static_cast<int>(ranks_.size()); }
  bool end_ordered() const noexcept { return end_ordered_; }
  bool all_ready() const noexcept;
  bool all_gone() const noexcept;

  /// Whether every loop returned by itself.
  bool all_returned() const noexcept;

  /// Whether some rank failed by itself.
  bool failed() const noexcept { return !failures_.empty(); }

  /// Whether there are only secondary failures: their cause is not known yet.
  bool lacks_cause() const noexcept {
    return failures_.empty() && !secondary_.empty();
  }

  /// Whether a rank is left that has not said how its loop ended.
  bool may_learn_cause() const noexcept;

  /// No cause will come: ranks with secondary failures have failed.
  void blame_secondary();

  /// Whether a failure came out of a loop, however few ranks had begun theirs.
  bool loop_failed() const noexcept;

  const std::map<int, rank_failure>& failures() const noexcept {
    return failures_;
  }

  /// Ranks that were left behind, unless their loops were over.
  const std::map<int, rank_failure>& left_behind() const noexcept {
    return left_behind_;
  }

  /// Ranks that were not ready yet, in order.
  std::vector<int> not_ready() const;

  /// Ranks whose process or thread is still there, in order.
  std::vector<int> still_there() const;

  /// Process id of *rank*; 0 if it was not launched.
  int pid(int rank) const {
    return ranks_.at(static_cast<std::size_t>(rank)).pid;
  }

  bool knows(int rank) const noexcept {
    return rank >= 0 && rank < world_size();
  }

  bool loop_over(int rank) const {
    return ranks_.at(static_cast<std::size_t>(rank)).loop_over;
  }
  bool gone(int rank) const {
    return ranks_.at(static_cast<std::size_t>(rank)).gone;
  }

private:
  struct rank_state {
    int pid = 0;
    std::string host;
    bool ready = false;
    bool loop_over = false;
    bool returned = false;
    bool gone = false;
    bool ended_before = false; // The order to end.
  };

  rank_state& at(int rank);
  std::vector<int> ranks_without(bool rank_state::*flag) const;
  void fail(int rank, rank_failure failure);
  rank_failure completed(int rank, rank_failure failure) const;

  std::vector<rank_state> ranks_;
  std::map<int, rank_failure> failures_;
  std::map<int, rank_failure> left_behind_;
  std::map<int, error> secondary_; ///< By rank: what its loop failed for.
  bool end_ordered_ = false;
};

} // namespace troupe::internal
