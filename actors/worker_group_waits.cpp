// How the WORKER GROUP watches its ranks: where each is, which waits for which,
// and which one hangs.

#include <algorithm>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/worker_group.hpp"
#include "troupe/runtime/process/stack_dump.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

void worker_group_state::watch_ranks() {
  self->run_delayed(attempt->monitor.interval(),
                    [this, number = attempt->number] {
                      if (!attempt || attempt->number != number)
                        return;
                      check_waits(); // The attempt may be over now.
                      if (attempt && !attempt->tracker.end_ordered())
                        watch_ranks();
                    });
}

void worker_group_state::watch_limit() {
  auto limit = args.plan.report_timeout;
  if (!limit || attempt->limit_timer)
    return;
  std::optional<clock::time_point> first;
  for (auto& wait : attempt->meetings.waits())
    first = std::min(first.value_or(wait.since), wait.since);
  if (!first)
    return;
  attempt->limit_timer = true;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(
    *first + *limit - self->clock().now());
  if (left.count() <= 0) // The driver was stopped for a part of it.
    left = attempt->monitor.interval();
  self->run_delayed(left, [this, number = attempt->number] {
    if (!attempt || attempt->number != number)
      return;
    attempt->limit_timer = false;
    check_waits();
    if (attempt && !attempt->tracker.end_ordered())
      watch_limit();
  });
}

void worker_group_state::check_waits() {
  if (attempt->tracker.end_ordered())
    return;
  look();
  check_collectives();
  if (!attempt || attempt->tracker.end_ordered())
    return;
  show_progress();
  look_for_stopped();
  auto now = args.now();
  auto since = std::exchange(attempt->last_check, now).value_or(now);
  attempt->monitor.checked_after(
    std::chrono::duration_cast<hang_monitor::duration>(now - since));
  auto verdict = attempt->monitor.check(
    waits(), [this](int rank) { return look_at(rank); }, self->clock().now());
  std::string stacks;
  for (auto rank : verdict.show_stacks)
    if (args.launcher->show_stacks(rank))
      stacks += (stacks.empty() ? "" : ", ") + ("logs/" + stacks_name(rank));
  if (!stacks.empty())
    stacks = "; the stacks of its threads are in " + stacks;
  attempt->named_wait = attempt->monitor.has_named();
  for (auto& text : verdict.over)
    send(self, driver,
         attempt_warning{attempt->number, text, attempt->named_wait});
  for (auto& text : verdict.named)
    send(self, driver, attempt_warning{attempt->number, text + stacks, true});
  for (auto& [rank, why] : verdict.hung)
    attempt->tracker.timed_out(rank, why);
  if (!verdict.hung.empty())
    on_failure();
}

void worker_group_state::show_progress() {
  auto progress = progress_of(seen(0), moment::clock::now());
  // Without another batch, the time left is a guess that only grows older.
  auto batch_of = [](const std::optional<epoch_progress>& x) {
    return x ? std::pair{x->epoch, x->batch} : std::pair{0ul, 0ul};
  };
  if (batch_of(progress) == batch_of(attempt->progress))
    return;
  attempt->progress = progress;
  send(self, driver, epoch_advanced{attempt->number, progress});
}

void worker_group_state::look_for_stopped() {
  for (int rank = 0; rank < args.plan.world_size; ++rank) {
    auto& loop = attempt->loops[static_cast<std::size_t>(rank)];
    if (loop.ended || !seen(rank).is_stopped)
      loop.stopped.reset();
    else if (!loop.stopped)
      loop.stopped = self->clock().now();
  }
}

void worker_group_state::look() {
  for (auto& x : attempt->seen) {
    x = snapshot_of(x.rank, attempt->segment->rank(x.rank));
    x.is_stopped = args.launcher->is_stopped(x.rank);
    x.has_ended = args.launcher->has_ended(x.rank);
  }
}

std::vector<rank_wait> worker_group_state::waits() const {
  return waits_of(attempt->meetings, attempt->seen, attempt->loops);
}

std::string worker_group_state::place_of(int rank) const {
  return internal::place_of(seen(rank), attempt->meetings.call_of(rank),
                            self->clock().now());
}

std::optional<process_vitals> worker_group_state::vitals_of(int rank) const {
  auto result = args.launcher->vitals(rank);
  if (result && !facts_of(rank).gpus.empty())
    result->busy = true;
  return result;
}

rank_look worker_group_state::look_at(int rank) const {
  rank_look result{place_of(rank), vitals_of(rank)};
  // A loop in a call to the group waits for an answer; others may wait for it
  // in a pending collective.
  if (result.vitals && !result.vitals->stopped
      && !attempt->meetings.call_of(rank).empty())
    result.vitals.reset();
  return result;
}

} // namespace troupe::internal
