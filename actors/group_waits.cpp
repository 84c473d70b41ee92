#include "troupe/actors/group_waits.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "troupe/runtime/process/stack_dump.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

void group_waits::watch_ranks() {
  group_.self->run_delayed(group_.attempt->monitor.interval(),
                           [this, number = group_.attempt->number] {
                             if (group_.attempt.is(number))
                               check([this] { watch_ranks(); });
                           });
}

void group_waits::watch_limit() {
  auto& a = *group_.attempt;
  auto limit = group_.args.plan.report_timeout;
  if (!limit || a.limit_timer)
    return;
  std::optional<group_attempt::time_point> first;
  for (auto& wait : a.meetings.waits())
    first = std::min(first.value_or(wait.since), wait.since);
  if (!first)
    return;
  a.limit_timer = true;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(*first + *limit
                                                           - group_.now());
  if (left.count() <= 0) // The driver was stopped for a part of it.
    left = a.monitor.interval();
  group_.self->run_delayed(left, [this, number = a.number] {
    if (!group_.attempt.is(number))
      return;
    group_.attempt->limit_timer = false;
    check([this] { watch_limit(); });
  });
}

void group_waits::check(std::function<void()> next) {
  if (group_.attempt->tracker.end_ordered())
    return;
  group_.look({}, [this, next = std::move(next)] {
    auto& a = *group_.attempt;
    if (a.tracker.end_ordered())
      return;
    a.monitor.look_for_stopped(group_.now());
    auto conclude = [this, next] {
      judge();
      if (group_.attempt && !group_.attempt->tracker.end_ordered())
        next();
    };
    if (auto ranks = a.monitor.ranks_to_examine(a.meetings); ranks.empty())
      conclude();
    else
      group_.look(ranks, conclude);
  });
}

void group_waits::judge() {
  auto& attempt = group_.attempt;
  if (attempt->tracker.end_ordered())
    return;
  auto now = group_.now();
  if (auto mismatch = attempt->monitor.mismatch(attempt->meetings, now))
    ending_.blame(mismatch->ranks, mismatch->reason.message);
  if (!attempt || attempt->tracker.end_ordered())
    return;
  auto& monitor = attempt->monitor;
  if (monitor.advance(moment::clock::now()))
    group_.tell_driver(epoch_advanced{attempt->number, monitor.progress()});
  auto verdict = monitor.judge(attempt->meetings, now, group_.args.now());
  auto stacks = verdict.show_stacks;
  show_stacks_of(stacks, [this, verdict = std::move(verdict)](auto& shown) {
    act_on(verdict, shown);
  });
}

void group_waits::show_stacks_of(
  const std::vector<int>& ranks,
  std::function<void(const std::vector<int>&)> f) {
  if (ranks.empty()) {
    f({});
    return;
  }
  auto shown = std::make_shared<std::vector<int>>();
  group_.hosts->ask<stacks_shown>(
    show_stacks{group_.attempt->number, ranks},
    [shown](const stacks_shown& x) {
      shown->insert(shown->end(), x.ranks.begin(), x.ranks.end());
    },
    [this, shown, f = std::move(f), number = group_.attempt->number] {
      if (group_.attempt.is(number))
        f(*shown);
    });
}

void group_waits::act_on(const hang_verdict& verdict,
                         const std::vector<int>& shown) {
  auto stacks = joined(shown, ", ", [](int rank) {
    return concat(run_layout::logs, '/', stacks_name(rank));
  });
  if (!stacks.empty())
    stacks = "; the stacks of its threads are in " + stacks;
  auto& a = *group_.attempt;
  for (auto& text : verdict.over)
    group_.warn(text, a.monitor.has_named_wait());
  for (auto& text : verdict.named)
    group_.warn(text + stacks, true);
  if (a.tracker.end_ordered())
    return;
  for (auto& [rank, why] : verdict.hung)
    a.tracker.timed_out(rank, why);
  if (!verdict.hung.empty())
    ending_.on_failure();
}

} // namespace troupe::internal
