// What the WORKER GROUP does when ranks end or are to end: whom it blames, how
// it ends the others, and when the attempt is over.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/worker_group.hpp"
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

void worker_group_state::end_loop(rank_loop_ended& x) {
  auto a = attempt.current(x.attempt);
  auto& loop = x.loop;
  if (!a || !a->tracker.knows(loop.rank))
    return;
  a->monitor.loop_ended(loop.rank, x.ranks, self->clock().now());
  cause_search::loop_ended(
    a->tracker, a->meetings,
    {loop.rank, loop.reason, loop.stopped, x.was_in_call},
    a->monitor.snapshots());
  watch_exit(loop.rank);
  on_failure();
}

void worker_group_state::watch_exit(int rank) {
  if (args.plan.on_lent_thread)
    return;
  auto limit = args.plan.exit_timeout;
  after(limit, [this, rank, limit] {
    if (attempt->tracker.gone(rank))
      return;
    auto what = concat("rank ", rank, " was still there ", duration_text(limit),
                       " after its loop had ended; its ");
    if (args.plan.in_process) {
      what += "thread is left behind";
      attempt->tracker.give_up(rank);
    } else {
      what += "process was killed";
      kill(rank);
    }
    send(self, driver, attempt_warning{attempt->number, std::move(what)});
    check_over();
  });
}

void worker_group_state::exited(const rank_exited& x) {
  auto a = attempt.current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  if (x.ended_before && a->tracker.end_ordered())
    a->tracker.order_end({x.rank});
  a->tracker.exited(x.rank, x.cause);
  a->exits.emplace(x.rank, self->clock().now());
  // Its spawner, which ends what ranks leave behind, is lost: a process with
  // the lock of the attempt may be left where the next one does not look.
  if (x.cause.how == process_exit::kind::lost && hosts->is_elsewhere(x.rank)
      && args.abandon)
    args.abandon(hosts->name_of(x.rank));
  on_failure();
  check_over();
}

void worker_group_state::disconnected(const rank_disconnected& x) {
  auto a = attempt.current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  // If its process has ended, the cause follows in a moment; later with a
  // spawner that hangs.
  auto look_for_it = [this, rank = x.rank] {
    if (attempt->tracker.gone(rank))
      return;
    if (!attempt->monitor.seen(rank).has_ended) {
      lose(rank, "its connection broke but its process is still there");
      return;
    }
    after(kill_patience, [this, rank] {
      lose(rank, concat("its connection broke, and its process was not "
                        "seen to end within ",
                        duration_text(kill_patience)));
    });
  };
  after(exit_patience, [this, look_for_it] { look({}, look_for_it); });
}

bool worker_group_state::lose_ranks_of(std::size_t host,
                                       const std::string& why) {
  auto& its = hosts->roster().at(host);
  auto first = its.first_rank;
  auto end = first + its.ranks;
  auto has_failed = false;
  for (int rank = first; rank < end; ++rank) {
    if (!attempt || attempt->tracker.gone(rank))
      continue;
    if (!attempt->tracker.loop_over(rank)) // Else only its exit is missing.
      has_failed = lose(rank, why) || has_failed;
    if (attempt) // It is over if that gave all ranks up.
      attempt->tracker.give_up(rank);
  }
  check_over();
  return has_failed;
}

bool worker_group_state::lose(int rank, std::string why) {
  if (attempt->tracker.gone(rank) || attempt->tracker.end_ordered())
    return false;
  attempt->tracker.lost(rank, std::move(why));
  on_failure();
  return true;
}

// -- the end of the attempt

void worker_group_state::leave(const caf::error& why) {
  leaving = true;
  hosts->close();
  leaving_for = says_unfinished(why) ? why : caf::error{};
  if (!attempt)
    self->quit(leaving_for);
  else if (!attempt->tracker.end_ordered())
    end_all({ec::stopped, "the driver is gone"}, args.plan.stop_timeout);
}

void worker_group_state::stop(const stop_attempt& x) {
  gathering.reset();
  auto a = attempt.current(x.attempt);
  if (!a) {
    send(self, driver, attempt_ended{x.attempt, true});
    return;
  }
  // Whatever the reason, ranks are asked to leave: they have not failed.
  if (!a->tracker.end_ordered())
    end_all({ec::stopped, x.reason.message},
            std::chrono::milliseconds{x.grace_ms});
}

void worker_group_state::preempt(const preempt_attempt& x) {
  if (auto a = attempt.current(x.attempt))
    a->leaves.preempt(x.reason, now_ms() + x.grace_ms);
}

void worker_group_state::on_failure() {
  if (attempt && !attempt->tracker.end_ordered())
    carry_out(attempt->causes.failed(
      attempt->tracker, attempt->monitor.snapshots(), attempt->meetings));
}

void worker_group_state::carry_out(const cause_search::step& x) {
  using kind = cause_search::step::kind;
  auto judge = [this] {
    if (!attempt->tracker.end_ordered())
      carry_out(attempt->causes.looked(
        attempt->tracker, attempt->monitor.snapshots(), attempt->meetings));
  };
  auto end = [this, x] {
    if (!attempt->tracker.end_ordered())
      end_all(x.reason, x.grace);
  };
  if (x.what == kind::look)
    after(x.delay, [this, judge] { look({}, judge); });
  else if (x.what == kind::end && x.delay.count() > 0)
    after(x.delay, end, false);
  else if (x.what == kind::end)
    end();
}

void worker_group_state::end_all(const error& reason,
                                 std::chrono::milliseconds grace) {
  auto& a = *attempt;
  a.tracker.order_end();
  a.end_reason = reason;
  a.end_ordered = self->clock().now();
  hosts->tell(end_ranks{a.number, reason});
  // Later: agents look which of their ranks wait.
  a.store.close(reason);
  if (grace.count() == 0)
    kill_ranks();
  else
    after(grace, [this] { kill_ranks(); });
}

void worker_group_state::kill_ranks() {
  if (args.plan.on_lent_thread) {
    send(self, driver,
         attempt_warning{attempt->number,
                         concat("the loop was not left ",
                                duration_text(args.plan.stop_timeout),
                                " after it was asked to end: the run waits "
                                "for it")});
    return;
  }
  for (auto rank : attempt->tracker.still_there()) {
    if (!args.plan.in_process) {
      kill(rank);
      continue;
    }
    attempt->tracker.timed_out(
      rank,
      concat("did not leave its loop ", duration_text(args.plan.stop_timeout),
             " after it was asked to; its thread is left behind"));
    attempt->tracker.give_up(rank);
  }
  check_over();
}

std::chrono::milliseconds worker_group_state::kill_limit(int rank) const {
  std::chrono::milliseconds limit = kill_patience;
  // A silent host counts as lost by then, and its ranks are not to blame.
  if (hosts->is_elsewhere(rank))
    limit = std::max(limit, hosts->roster().loss_limit());
  return limit;
}

void worker_group_state::kill(int rank) {
  send(self, hosts->agent_of(rank), kill_rank{attempt->number, rank});
  auto limit = kill_limit(rank);
  after(limit, [this, rank, limit] {
    if (attempt->tracker.gone(rank))
      return;
    attempt->tracker.leave_behind(
      rank, concat("its process was still there ", duration_text(limit),
                   " after it was killed; it is left behind"));
    // The next attempt must not wait for it: no one kills it there.
    if (hosts->is_elsewhere(rank) && args.abandon)
      args.abandon(hosts->name_of(rank));
    on_failure();
    check_over();
  });
}

attempt_ended worker_group_state::how_it_ended() const {
  auto& a = *attempt;
  auto all_returned = a.tracker.all_returned();
  auto outcome = a.leaves.outcome_of(all_returned, a.meetings.next_report());
  return {a.number, !all_returned, outcome.preempted,
          std::move(outcome.left_for)};
}

std::vector<loss_excuses::failed_rank>
worker_group_state::failed_ranks() const {
  std::vector<loss_excuses::failed_rank> result;
  for (auto& [rank, failure] : attempt->tracker.failures()) {
    auto& ended = attempt->monitor.loop_end(rank);
    auto exit = attempt->exits.find(rank);
    auto exited =
      exit != attempt->exits.end() ? std::optional{exit->second} : std::nullopt;
    result.push_back({hosts->roster().host_with(rank), failure.kind,
                      failure.code, ended, exited, attempt->end_ordered});
  }
  return result;
}

attempt_failed worker_group_state::how_it_failed() {
  auto& a = *attempt;
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

std::string worker_group_state::leave_hosts_out(bool have_begun) {
  auto& a = *attempt;
  auto& failures = a.tracker.failures();
  std::set<std::size_t> failed;
  for (auto& [rank, failure] : failures)
    failed.insert(hosts->roster().host_with(rank));
  auto names =
    hosts->leave_out(std::move(failed), a.number, a.begun, have_begun);
  // Until an attempt has come up, the program may be the cause.
  if (names.empty() || !has_come_up)
    return {};
  return concat("ranks ",
                have_begun ? "failed before a report" : "could not start",
                " on ", names, ": ", failures_text(failures));
}

void worker_group_state::check_over() {
  if (!attempt || !attempt->tracker.all_gone())
    return;
  auto& a = *attempt;
  hosts->tell(attempt_over{a.number});
  a.store.close({ec::stopped, "the attempt is over"});
  if (a.tracker.failed() || !a.tracker.left_behind().empty())
    send(self, driver, how_it_failed());
  else
    send(self, driver, how_it_ended());
  attempt.reset();
  hosts->end_attempt();
  if (leaving)
    self->quit(leaving_for);
}

} // namespace troupe::internal
