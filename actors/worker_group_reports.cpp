// What the WORKER GROUP does about reports and barriers: pairs them, has them
// stored, and answers.

#include <algorithm>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/worker_group.hpp"

namespace troupe::internal {

namespace {

/// How long a rank in a call may show no activity until no other thread of it
/// is expected to call a collective.
constexpr auto call_patience = std::chrono::seconds{5};

} // namespace

void worker_group_state::take(host_calls& x) {
  for (auto& call : x.calls) {
    // A call may end the attempt.
    auto a = attempt.current(x.attempt);
    if (!a || a->tracker.end_ordered())
      return;
    if (auto sent = std::get_if<report>(&call.what))
      add(call, *sent);
    else if (auto arrival = std::get_if<join_barrier>(&call.what))
      join(call, *arrival);
    else
      a->meetings.await_reports(std::get<reports_awaited>(call.what).rank,
                                call.at.time);
  }
  if (attempt && !attempt->tracker.end_ordered())
    check_calls();
}

void worker_group_state::add(host_call& call, report& x) {
  auto& a = *attempt;
  auto rank = x.value.rank;
  auto index = x.value.index;
  if (!x.waits)
    a.leaves.ran_ahead(index);
  auto batch = a.meetings.add(std::move(x.value), x.waits, call.at.time);
  if (!batch) {
    on_misuse({a.number, rank, index, std::move(batch.error())});
    return;
  }
  a.seen[static_cast<std::size_t>(rank)].waited = call.waited;
  if (*batch)
    commit(std::move(**batch));
}

void worker_group_state::note_steps(const report_batch& batch) {
  for (int rank = 0; rank < attempt->world_size(); ++rank)
    attempt->monitor.stepped(rank,
                             batch.step_s[static_cast<std::size_t>(rank)]);
  // In a loop with collectives all steps are as long as that of the slowest.
  auto own = batch.step_s;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    auto waited = attempt->seen[rank].waited;
    auto before = std::exchange(attempt->waited[rank], waited);
    std::chrono::duration<double> here =
      rank_activity::clock::duration{waited - before};
    own[rank] = std::max(0.0, own[rank] - here.count());
  }
  if (auto text = attempt->stragglers.stepped(own))
    send(
      self, driver,
      attempt_warning{attempt->number, std::move(*text), attempt->named_wait});
}

// Ranks were at work while the driver was stopped.
void worker_group_state::leave_out_standstill(report_batch& batch) const {
  using std::chrono::duration;
  auto now = self->clock().now();
  auto waited = std::chrono::duration_cast<rank_wait::time_point::duration>(
    duration<double>{batch.wait_s});
  auto since_check = args.now() - attempt->last_check.value_or(args.now());
  auto stopped = attempt->monitor.standstill(
    now - waited, now,
    std::chrono::duration_cast<hang_monitor::duration>(since_check));
  batch.wait_s =
    std::max(0.0, batch.wait_s - duration<double>{stopped}.count());
}

void worker_group_state::commit(report_batch batch) {
  note_steps(batch);
  leave_out_standstill(batch);
  auto number = attempt->number;
  auto index = batch.index;
  request(self, driver, caf::infinite, commit_batch{number, std::move(batch)})
    .then(
      [this, number](report_committed& x) {
        answered({number, std::move(x), {}});
      },
      [this, number, index](const caf::error& reason) {
        answered({number, {index, {}, {}}, from_caf(reason)});
      });
}

void worker_group_state::answered(reports_answered x) {
  if (!attempt.is(x.attempt))
    return;
  attempt->meetings.committed(x.answer.index, self->clock().now());
  if (x.answer.stop)
    attempt->leaves.train_no_more(std::move(x.answer.stop->reason));
  if (!x.reason)
    x.answer.stop = notice_for(x.answer.index, x.answer.checkpoint.has_value());
  if (!x.reason)
    hosts.progressed();
  tell_hosts(std::move(x));
}

std::optional<stop_notice> worker_group_state::notice_for(std::uint64_t index,
                                                          bool has_checkpoint) {
  if (auto why = resizes.reported(has_checkpoint))
    attempt->leaves.continue_later(std::move(*why));
  auto notice = attempt->leaves.notice_for(index);
  if (!notice)
    return std::nullopt;
  auto left = notice->deadline_ms;
  if (left != leave_plan::never_ms
      && notice->kind != stop_info::kind_type::finished)
    left -= now_ms();
  return stop_notice{notice->after, std::move(notice->reason),
                     notice->deadline_ms, notice->kind, left};
}

void worker_group_state::join(host_call& call, join_barrier& x) {
  auto released = attempt->meetings.arrive(
    {x.rank, x.sequence, x.kind, std::move(x.payload), std::move(x.refusal)},
    call.at.time);
  if (!released)
    on_misuse({attempt->number, x.rank, {}, std::move(released.error())});
  else if (*released)
    release(std::move(**released));
}

void worker_group_state::release(barrier_release x) {
  tell_hosts(barrier_answered{
    attempt->number, {std::move(x.payload)}, std::move(x.refusal)});
}

// To blame is the loop that returned early, not the rank that waits for it.
void worker_group_state::on_misuse(call_refused x) {
  send(self, agent_of(x.rank), x);
  auto blamed = x.reason.code == ec::rank_failed ? attempt->meetings.ended()
                                                 : std::vector{x.rank};
  for (auto rank : blamed)
    attempt->tracker.record_misuse(rank, x.reason.message);
  on_failure();
}

void worker_group_state::check_calls() {
  if (auto mismatch = attempt->meetings.mismatch())
    end_for(*mismatch);
  else
    watch_limit();
}

std::vector<collective_calls> worker_group_state::calls_seen() const {
  std::vector<collective_calls> result;
  for (auto& x : attempt->seen)
    result.push_back(collective_calls_of(x));
  return result;
}

void worker_group_state::check_collectives() {
  auto& a = *attempt;
  auto& plan = args.plan;
  auto calls = calls_seen();
  auto suspected = a.meetings.mismatch(calls);
  // While a signal has stopped a rank, no one knows which call it would make,
  // nor what the others would do then: only `hang_timeout` limits their waits.
  auto is_stopped = [](const loop_place& x) { return x.stopped.has_value(); };
  if (suspected && std::ranges::any_of(a.loops, is_stopped)) {
    std::ranges::fill(a.idle_in_calls, idle_time{});
    return;
  }
  for (int rank = 0; rank < a.world_size(); ++rank) {
    auto& idle = a.idle_in_calls[static_cast<std::size_t>(rank)];
    if (!suspected || a.meetings.call_of(rank).empty()
        || std::ranges::count(suspected->ranks, rank) == 0) {
      idle = {};
      continue;
    }
    // Vitals of threads are unknown: such ranks may wait until `hang_timeout`.
    auto seen = plan.in_process ? process_vitals{} : vitals_of(rank);
    idle.look(seen, self->clock().now(), 2 * a.monitor.interval());
    calls[static_cast<std::size_t>(rank)].is_idle =
      (!plan.in_process && idle.get() >= call_patience)
      || (plan.hang_timeout && idle.get() >= *plan.hang_timeout);
  }
  if (auto mismatch = suspected ? a.meetings.mismatch(calls) : std::nullopt)
    end_for(*mismatch);
}

void worker_group_state::end_for(const rank_mismatch& mismatch) {
  for (auto rank : mismatch.ranks)
    attempt->tracker.record_misuse(rank, mismatch.reason.message);
  on_failure();
}

} // namespace troupe::internal
