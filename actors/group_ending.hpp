#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <caf/error.hpp>

#include "troupe/actors/group_core.hpp"

namespace troupe::internal {

/// How ranks end, and with them the attempt of a worker group: whom it blames,
/// how it ends the others, and when the attempt is over. Any function here may
/// be the end of it: then `group_core::attempt` is empty.
class group_ending {
public:
  explicit group_ending(group_core& group) : group_(group) {}

  // -- the end of a rank

  void loop_ended(const rank_loop_ended& x);
  void launch_failed(const rank_launch_failed& x);
  void exited(const rank_exited& x);
  void disconnected(const rank_disconnected& x);

  /// *host* is lost with its ranks, for *why*. Returns whether one of them has
  /// failed for that.
  bool lose_ranks_of(std::size_t host, const std::string& why);

  /// *ranks* broke a rule that all ranks share; *what* names it.
  void blame(const std::vector<int>& ranks, const std::string& what);

  /// Something may have failed: does what follows.
  void on_failure();

  // -- the end of all ranks

  void stop(const stop_attempt& x);

  /// Ends the ranks, if there are any, and then the actor and its agents. The
  /// agents get *why* if it says that the run did not finish (`unfinished`).
  void leave(const caf::error& why);

  /// Ends every rank: asks them, and kills what is there after *grace*.
  void end_all(const error& reason, std::chrono::milliseconds grace);

  /// Kills the process of *rank*, and gives it up if that takes too long.
  void kill(int rank);

private:
  /// Counts *rank* as failed unless it is gone, or ends by order. Returns
  /// whether it does.
  bool lose(int rank, std::string why);
  /// The loop of *rank* is over: kills what is still there of it after a while.
  void watch_exit(int rank);
  void carry_out(const cause_search::step& x);
  void kill_ranks();
  std::chrono::milliseconds kill_limit(int rank) const;
  void check_over();
  attempt_ended how_it_ended() const;
  attempt_failed how_it_failed();
  std::vector<loss_excuses::failed_rank> failed_ranks() const;
  /// The next attempts do without hosts on which ranks could not start, or on
  /// which loops (*have_begun*) fail that work elsewhere, if they can. Why that
  /// does not count as a failure; empty: it does.
  std::string leave_hosts_out(bool have_begun);

  group_core& group_;
  bool is_leaving_ = false;
  caf::error leaving_for_; ///< `unfinished`; `caf::none`: the run finished.
};

} // namespace troupe::internal
