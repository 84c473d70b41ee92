// What the WORKER GROUP does about reports and barriers: pairs them, has them
// stored, answers, and watches who waits for whom.

#include <algorithm>

#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/worker_group.hpp"
#include "troupe/runtime/report/report_options.hpp"

namespace troupe {

caf::result<report_committed> worker_group_state::add(report& x) {
  auto a = current(x.attempt);
  if (!a)
    return to_caf(too_late(x.attempt));
  if (a->tracker.end_ordered())
    return to_caf(a->end_reason);
  auto rank = x.value.rank;
  auto index = x.value.index;
  if (!x.waits)
    a->last_ahead = std::max(a->last_ahead.value_or(0), index);
  auto batch =
    a->meetings.add(std::move(x.value), x.waits, self->clock().now());
  if (!batch) {
    if (a->tracker.knows(rank)) {
      a->tracker.broke_a_rule(rank, batch.error().message);
      on_failure();
    }
    return to_caf(batch.error());
  }
  auto promise = self->make_response_promise<report_committed>();
  a->reports.emplace(index, promise);
  if (*batch)
    commit(std::move(**batch));
  else
    check_calls();
  return promise;
}

void worker_group_state::awaited(const reports_awaited& x) {
  auto a = current(x.attempt);
  if (!a || a->tracker.end_ordered())
    return;
  a->meetings.await_reports(x.rank, self->clock().now());
  check_calls();
}

void worker_group_state::commit(report_batch batch) {
  auto number = attempt->number;
  auto index = batch.index;
  auto deliver = [this, number, index](auto answer) {
    if (!attempt || attempt->number != number)
      return;
    attempt->meetings.committed(index, self->clock().now());
    auto [first, last] = attempt->reports.equal_range(index);
    for (auto i = first; i != last; ++i)
      i->second.deliver(answer);
    attempt->reports.erase(first, last);
  };
  self->request(driver, caf::infinite, commit_batch{number, std::move(batch)})
    .then(
      [this, number, deliver](batch_committed& x) {
        std::optional<stop_notice> stop;
        if (attempt && attempt->number == number)
          stop = notice_for(x.index);
        deliver(
          report_committed{x.index, std::move(x.checkpoint), std::move(stop)});
      },
      [deliver](caf::error& reason) { deliver(reason); });
}

std::optional<stop_notice> worker_group_state::notice_for(std::uint64_t index) {
  auto& a = *attempt;
  if (!a.preemption)
    return std::nullopt;
  // All ranks hear of it with this answer. One that did not wait for it may be
  // ahead by so many reports; before it is ahead any further, it has the
  // answer.
  if (!a.leave_after)
    a.leave_after = a.last_ahead && *a.last_ahead >= index
                      ? index + max_reports_ahead
                      : index;
  return stop_notice{*a.leave_after, a.preemption->reason,
                     a.preemption->deadline_ms};
}

caf::result<barrier_released> worker_group_state::join(join_barrier& x) {
  auto a = current(x.attempt);
  if (!a)
    return to_caf(too_late(x.attempt));
  if (a->tracker.end_ordered())
    return to_caf(a->end_reason);
  auto kind =
    x.broadcast ? collective_kind::broadcast : collective_kind::barrier;
  auto released = a->meetings.arrive(
    {x.rank, x.sequence, kind, std::move(x.payload), std::move(x.refusal)},
    self->clock().now());
  if (!released) {
    if (a->tracker.knows(x.rank)) {
      a->tracker.broke_a_rule(x.rank, released.error().message);
      on_failure();
    }
    return to_caf(released.error());
  }
  auto promise = self->make_response_promise<barrier_released>();
  a->barriers.push_back(promise);
  if (*released)
    release(**released);
  else
    check_calls();
  return promise;
}

void worker_group_state::release(const barrier_release& x) {
  for (auto& waiting : std::exchange(attempt->barriers, {}))
    if (x.refusal)
      waiting.deliver(to_caf(x.refusal));
    else
      waiting.deliver(barrier_released{x.payload});
}

void worker_group_state::check_calls() {
  auto mismatch = attempt->meetings.mismatch();
  if (!mismatch) {
    watch_waits();
    return;
  }
  for (auto rank : mismatch->ranks)
    attempt->tracker.broke_a_rule(rank, mismatch->reason.message);
  on_failure();
}

void worker_group_state::watch_waits() {
  if (attempt->alarm_set)
    return;
  attempt->alarm_set = true;
  auto& a = *attempt;
  std::chrono::milliseconds interval = wait_alarm::warn_interval;
  if (auto limit = args.plan.report_timeout) {
    interval = std::min(interval, *limit);
    // A wait that is under way already has less time left.
    auto now = self->clock().now();
    for (auto& wait : a.meetings.waits())
      interval =
        std::min(interval, std::chrono::ceil<std::chrono::milliseconds>(
                             wait.since + *limit - now));
  }
  self->run_delayed(interval,
                    [this, number = a.number] { check_waits(number); });
}

void worker_group_state::check_waits(std::uint64_t number) {
  if (!attempt || attempt->number != number || attempt->tracker.end_ordered())
    return;
  attempt->alarm_set = false;
  auto now = self->clock().now();
  // Whether the attempt goes on.
  auto check = [&](wait_alarm& alarm, const std::optional<rank_wait>& wait) {
    auto verdict = alarm.check(wait, now);
    if (!verdict) {
      for (auto rank : wait->missing)
        attempt->tracker.timed_out(rank, verdict.error().message);
      on_failure(); // The attempt may be gone now.
    } else if (*verdict) {
      self->send(driver, attempt_warning{number, **verdict});
    }
    return verdict.has_value();
  };
  auto reports = attempt->meetings.report_wait();
  auto barriers = attempt->meetings.barrier_wait();
  if (check(attempt->report_alarm, reports)
      && check(attempt->barrier_alarm, barriers) && (reports || barriers))
    watch_waits();
}

} // namespace troupe
