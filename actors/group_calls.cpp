#include "troupe/actors/group_calls.hpp"

#include <utility>
#include <variant>
#include <vector>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal {

void group_calls::take(host_calls& x) {
  for (auto& call : x.calls) {
    // A call may end the attempt.
    auto a = group_.attempt.current(x.attempt);
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
  if (group_.attempt && !group_.attempt->tracker.end_ordered())
    check();
}

void group_calls::add(host_call& call, report& x) {
  auto& a = *group_.attempt;
  auto rank = x.value.rank;
  auto index = x.value.index;
  if (!x.waits)
    a.leaves.ran_ahead(index);
  auto batch = a.meetings.add(std::move(x.value), x.waits, call.at.time);
  if (!batch) {
    refuse({a.number, rank, index, std::move(batch.error())});
    return;
  }
  a.monitor.waited(rank, call.waited);
  if (*batch)
    commit(std::move(**batch));
}

void group_calls::commit(report_batch batch) {
  auto number = group_.attempt->number;
  auto& monitor = group_.attempt->monitor;
  if (auto text = monitor.stepped(batch))
    group_.warn(std::move(*text), monitor.has_named_wait());
  monitor.leave_out_standstill(batch, group_.now(), group_.args.now());
  auto index = batch.index;
  request(group_.self, group_.driver, caf::infinite,
          commit_batch{number, std::move(batch)})
    .then(
      [this, number](report_committed& x) {
        answered({number, std::move(x), {}});
      },
      [this, number, index](const caf::error& reason) {
        answered({number, {index, {}, {}}, from_caf(reason)});
      });
}

void group_calls::answered(reports_answered x) {
  if (!group_.attempt.is(x.attempt))
    return;
  auto& a = *group_.attempt;
  a.meetings.committed(x.answer.index, group_.now());
  if (x.answer.stop)
    a.leaves.train_no_more(std::move(x.answer.stop->reason));
  if (!x.reason)
    x.answer.stop = notice_for(x.answer.index, x.answer.checkpoint.has_value());
  if (!x.reason)
    group_.hosts->progressed();
  group_.hosts->tell(std::move(x));
}

std::optional<stop_notice> group_calls::notice_for(std::uint64_t index,
                                                   bool has_checkpoint) {
  auto& leaves = group_.attempt->leaves;
  if (auto why = group_.hosts->resize_reason(has_checkpoint))
    leaves.continue_later(std::move(*why));
  auto notice = leaves.notice_for(index);
  if (!notice)
    return std::nullopt;
  auto left = notice->deadline_ms;
  if (left != leave_plan::never_ms
      && notice->kind != stop_info::kind_type::finished)
    left -= group_.now_ms();
  return stop_notice{notice->after, std::move(notice->reason),
                     notice->deadline_ms, notice->kind, left};
}

void group_calls::join(host_call& call, join_barrier& x) {
  auto& a = *group_.attempt;
  auto released = a.meetings.arrive(
    {x.rank, x.sequence, x.kind, std::move(x.payload), std::move(x.refusal)},
    call.at.time);
  if (!released)
    refuse({a.number, x.rank, {}, std::move(released.error())});
  else if (auto& answer = *released)
    group_.hosts->tell(barrier_answered{
      a.number, {std::move(answer->payload)}, std::move(answer->refusal)});
}

// To blame is the loop that returned early, not the rank that waits for it.
void group_calls::refuse(const call_refused& x) {
  send(group_.self, group_.hosts->agent_of(x.rank), x);
  ending_.blame(x.reason.code == ec::rank_failed
                  ? group_.attempt->meetings.ended()
                  : std::vector{x.rank},
                x.reason.message);
}

void group_calls::check() {
  if (auto mismatch = group_.attempt->meetings.mismatch())
    ending_.blame(mismatch->ranks, mismatch->reason.message);
  else
    waits_.watch_limit();
}

} // namespace troupe::internal
