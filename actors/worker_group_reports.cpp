// What the WORKER GROUP does about reports and barriers: pairs them, has them
// stored, and answers.

#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/worker_group.hpp"

namespace troupe::internal {

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
  a.monitor.waited(rank, call.waited);
  if (*batch)
    commit(std::move(**batch));
}

void worker_group_state::commit(report_batch batch) {
  auto number = attempt->number;
  auto& monitor = attempt->monitor;
  if (auto text = monitor.stepped(batch))
    send(self, driver,
         attempt_warning{number, std::move(*text), monitor.has_named_wait()});
  monitor.leave_out_standstill(batch, self->clock().now(), args.now());
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
    hosts->progressed();
  hosts->tell(std::move(x));
}

std::optional<stop_notice> worker_group_state::notice_for(std::uint64_t index,
                                                          bool has_checkpoint) {
  if (auto why = hosts->resize_reason(has_checkpoint))
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
  hosts->tell(barrier_answered{
    attempt->number, {std::move(x.payload)}, std::move(x.refusal)});
}

// To blame is the loop that returned early, not the rank that waits for it.
void worker_group_state::on_misuse(call_refused x) {
  send(self, hosts->agent_of(x.rank), x);
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

void worker_group_state::end_for(const rank_mismatch& mismatch) {
  for (auto rank : mismatch.ranks)
    attempt->tracker.record_misuse(rank, mismatch.reason.message);
  on_failure();
}

} // namespace troupe::internal
