#include "troupe/actors/group_ending.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How long a rank whose connection broke may take until its process is known
/// to have ended.
constexpr auto exit_patience = std::chrono::seconds{2};

/// How long a killed process may take to be gone. A spawner that hangs is
/// overcome within two seconds; what takes longer waits for a disk or a device.
constexpr auto kill_patience = std::chrono::seconds{10};

} // namespace

// -- the end of a rank

void group_ending::loop_ended(const rank_loop_ended& x) {
  auto a = group_.attempt.current(x.attempt);
  auto& loop = x.loop;
  if (!a || !a->tracker.knows(loop.rank))
    return;
  a->monitor.loop_ended(loop.rank, x.ranks, group_.now());
  cause_search::loop_ended(
    a->tracker, a->meetings,
    {loop.rank, loop.reason, loop.stopped, x.was_in_call},
    a->monitor.snapshots());
  watch_exit(loop.rank);
  on_failure();
}

void group_ending::launch_failed(const rank_launch_failed& x) {
  auto a = group_.attempt.current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  a->tracker.launch_failed(x.rank, x.reason);
  on_failure();
  check_over();
}

void group_ending::watch_exit(int rank) {
  if (group_.args.plan.on_lent_thread)
    return;
  auto limit = group_.args.plan.exit_timeout;
  group_.after(limit, [this, rank, limit] {
    if (group_.attempt->tracker.gone(rank))
      return;
    auto what = concat("rank ", rank, " was still there ", duration_text(limit),
                       " after its loop had ended; its ");
    if (group_.args.plan.in_process) {
      what += "thread is left behind";
      group_.attempt->tracker.give_up(rank);
    } else {
      what += "process was killed";
      kill(rank);
    }
    group_.warn(std::move(what));
    check_over();
  });
}

void group_ending::exited(const rank_exited& x) {
  auto a = group_.attempt.current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  if (x.ended_before && a->tracker.end_ordered())
    a->tracker.order_end({x.rank});
  a->tracker.exited(x.rank, x.cause);
  a->exits.emplace(x.rank, group_.now());
  // Its spawner, which ends what ranks leave behind, is lost: a process with
  // the lock of the attempt may be left where the next one does not look.
  if (x.cause.how == process_exit::kind::lost
      && group_.hosts->is_elsewhere(x.rank) && group_.args.abandon)
    group_.args.abandon(group_.hosts->name_of(x.rank));
  on_failure();
  check_over();
}

void group_ending::disconnected(const rank_disconnected& x) {
  auto a = group_.attempt.current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  // If its process has ended, the cause follows in a moment; later with a
  // spawner that hangs.
  auto look_for_it = [this, rank = x.rank] {
    if (group_.attempt->tracker.gone(rank))
      return;
    if (!group_.attempt->monitor.seen(rank).has_ended) {
      lose(rank, "its connection broke but its process is still there");
      return;
    }
    group_.after(kill_patience, [this, rank] {
      lose(rank, concat("its connection broke, and its process was not "
                        "seen to end within ",
                        duration_text(kill_patience)));
    });
  };
  group_.after(exit_patience,
               [this, look_for_it] { group_.look({}, look_for_it); });
}

bool group_ending::lose_ranks_of(std::size_t host, const std::string& why) {
  auto& its = group_.hosts->roster().at(host);
  auto first = its.first_rank;
  auto end = first + its.ranks;
  auto& a = group_.attempt;
  auto has_failed = false;
  for (int rank = first; rank < end; ++rank) {
    if (!a || a->tracker.gone(rank))
      continue;
    if (!a->tracker.loop_over(rank)) // Else only its exit is missing.
      has_failed = lose(rank, why) || has_failed;
    if (a) // It is over if that gave all ranks up.
      a->tracker.give_up(rank);
  }
  check_over();
  return has_failed;
}

bool group_ending::lose(int rank, std::string why) {
  auto& tracker = group_.attempt->tracker;
  if (tracker.gone(rank) || tracker.end_ordered())
    return false;
  tracker.lost(rank, std::move(why));
  on_failure();
  return true;
}

void group_ending::blame(const std::vector<int>& ranks,
                         const std::string& what) {
  for (auto rank : ranks)
    group_.attempt->tracker.record_misuse(rank, what);
  on_failure();
}

void group_ending::on_failure() {
  auto& a = group_.attempt;
  if (a && !a->tracker.end_ordered())
    carry_out(
      a->causes.failed(a->tracker, a->monitor.snapshots(), a->meetings));
}

void group_ending::carry_out(const cause_search::step& x) {
  using kind = cause_search::step::kind;
  auto judge = [this] {
    auto& a = *group_.attempt;
    if (!a.tracker.end_ordered())
      carry_out(a.causes.looked(a.tracker, a.monitor.snapshots(), a.meetings));
  };
  auto end = [this, x] {
    if (!group_.attempt->tracker.end_ordered())
      end_all(x.reason, x.grace);
  };
  if (x.what == kind::look)
    group_.after(x.delay, [this, judge] { group_.look({}, judge); });
  else if (x.what == kind::end && x.delay.count() > 0)
    group_.after(x.delay, end, false);
  else if (x.what == kind::end)
    end();
}

// -- the end of all ranks

void group_ending::stop(const stop_attempt& x) {
  auto a = group_.attempt.current(x.attempt);
  if (!a) {
    group_.tell_driver(attempt_ended{x.attempt, true});
    return;
  }
  // Whatever the reason, ranks are asked to leave: they have not failed.
  if (!a->tracker.end_ordered())
    end_all({ec::stopped, x.reason.message},
            std::chrono::milliseconds{x.grace_ms});
}

void group_ending::leave(const caf::error& why) {
  is_leaving_ = true;
  group_.hosts->close();
  leaving_for_ = says_unfinished(why) ? why : caf::error{};
  if (!group_.attempt)
    group_.self->quit(leaving_for_);
  else if (!group_.attempt->tracker.end_ordered())
    end_all({ec::stopped, "the driver is gone"}, group_.args.plan.stop_timeout);
}

void group_ending::end_all(const error& reason,
                           std::chrono::milliseconds grace) {
  auto& a = *group_.attempt;
  a.tracker.order_end();
  a.end_reason = reason;
  a.end_ordered = group_.now();
  group_.hosts->tell(end_ranks{a.number, reason});
  // Later: agents look which of their ranks wait.
  a.store.close(reason);
  if (grace.count() == 0)
    kill_ranks();
  else
    group_.after(grace, [this] { kill_ranks(); });
}

void group_ending::kill_ranks() {
  if (group_.args.plan.on_lent_thread) {
    group_.warn(concat("the loop was not left ",
                       duration_text(group_.args.plan.stop_timeout),
                       " after it was asked to end: the run waits for it"));
    return;
  }
  for (auto rank : group_.attempt->tracker.still_there()) {
    if (!group_.args.plan.in_process) {
      kill(rank);
      continue;
    }
    group_.attempt->tracker.timed_out(
      rank, concat("did not leave its loop ",
                   duration_text(group_.args.plan.stop_timeout),
                   " after it was asked to; its thread is left behind"));
    group_.attempt->tracker.give_up(rank);
  }
  check_over();
}

std::chrono::milliseconds group_ending::kill_limit(int rank) const {
  std::chrono::milliseconds limit = kill_patience;
  // A silent host counts as lost by then, and its ranks are not to blame.
  if (group_.hosts->is_elsewhere(rank))
    limit = std::max(limit, group_.hosts->roster().loss_limit());
  return limit;
}

void group_ending::kill(int rank) {
  send(group_.self, group_.hosts->agent_of(rank),
       kill_rank{group_.attempt->number, rank});
  auto limit = kill_limit(rank);
  group_.after(limit, [this, rank, limit] {
    if (group_.attempt->tracker.gone(rank))
      return;
    group_.attempt->tracker.leave_behind(
      rank, concat("its process was still there ", duration_text(limit),
                   " after it was killed; it is left behind"));
    // The next attempt must not wait for it: no one kills it there.
    if (group_.hosts->is_elsewhere(rank) && group_.args.abandon)
      group_.args.abandon(group_.hosts->name_of(rank));
    on_failure();
    check_over();
  });
}

// -- the end of the attempt

attempt_ended group_ending::how_it_ended() const {
  auto& a = *group_.attempt;
  auto all_returned = a.tracker.all_returned();
  auto outcome = a.leaves.outcome_of(all_returned, a.meetings.next_report());
  return {a.number, !all_returned, outcome.preempted,
          std::move(outcome.left_for)};
}

std::vector<loss_excuses::failed_rank> group_ending::failed_ranks() const {
  auto& a = *group_.attempt;
  std::vector<loss_excuses::failed_rank> result;
  for (auto& [rank, failure] : a.tracker.failures()) {
    auto exit = a.exits.find(rank);
    auto exited =
      exit != a.exits.end() ? std::optional{exit->second} : std::nullopt;
    result.push_back({group_.hosts->roster().host_with(rank), failure.kind,
                      failure.code, a.monitor.loop_end(rank), exited,
                      a.end_ordered});
  }
  return result;
}

attempt_failed group_ending::how_it_failed() {
  auto& a = *group_.attempt;
  attempt_failed result{a.number, a.started || a.tracker.loop_failed(),
                        a.end_reason, a.tracker.failures()};
  auto& left_behind = a.tracker.left_behind();
  result.ranks.insert(left_behind.begin(), left_behind.end());
  if (!a.tracker.failed()) { // They did not end when they were killed (AT-5).
    result.left_for = how_it_ended().left_for;
    return result;
  }
  result.left_for = a.excuses.excuse(failed_ranks());
  if (result.left_for.empty())
    result.left_for = leave_hosts_out(result.started);
  return result;
}

std::string group_ending::leave_hosts_out(bool have_begun) {
  auto& a = *group_.attempt;
  auto& failures = a.tracker.failures();
  std::set<std::size_t> failed;
  for (auto& [rank, failure] : failures)
    failed.insert(group_.hosts->roster().host_with(rank));
  auto names =
    group_.hosts->leave_out(std::move(failed), a.number, a.begun, have_begun);
  // Until an attempt has come up, the program may be the cause.
  if (names.empty() || !group_.has_come_up)
    return {};
  return concat("ranks ",
                have_begun ? "failed before a report" : "could not start",
                " on ", names, ": ", failures_text(failures));
}

void group_ending::check_over() {
  if (!group_.attempt || !group_.attempt->tracker.all_gone())
    return;
  auto& a = *group_.attempt;
  group_.hosts->tell(attempt_over{a.number});
  a.store.close({ec::stopped, "the attempt is over"});
  if (a.tracker.failed() || !a.tracker.left_behind().empty())
    group_.tell_driver(how_it_failed());
  else
    group_.tell_driver(how_it_ended());
  group_.attempt.reset();
  group_.hosts->end_attempt();
  if (is_leaving_)
    group_.self->quit(leaving_for_);
}

} // namespace troupe::internal
