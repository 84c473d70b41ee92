// How the WORKER GROUP watches its ranks: where each is, which waits for which,
// and which one hangs.

#include <algorithm>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/worker_group.hpp"
#include "troupe/runtime/process/stack_dump.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How long a host may take to say what its ranks show.
constexpr auto look_patience = std::chrono::seconds{5};

/// Asks all *agents*. Calls *learn* with each answer, and *done* once each has
/// answered or has failed to, at once if there are none.
template <class Answer, class Self, class Question, class Learn>
void ask_each(Self self, const std::vector<host_agent_actor>& agents,
              const Question& question, Learn learn,
              std::function<void()> done) {
  auto one_less = [left = std::make_shared<std::size_t>(agents.size()), done] {
    if (--*left == 0)
      done();
  };
  if (agents.empty())
    return done();
  for (auto& agent : agents)
    request(self, agent, look_patience, question)
      .then(
        [learn, one_less](Answer& x) {
          learn(x);
          one_less();
        },
        [one_less](const caf::error&) { one_less(); });
}

} // namespace

// -- looks at the ranks

void worker_group_state::look(const std::vector<int>& examined,
                              std::function<void()> f) {
  auto vitals = !examined.empty();
  ask_each<host_snapshots>(
    self, agents_of_ranks(), look_at_ranks{attempt->number, examined},
    [this, vitals](host_snapshots& x) { learn(x, vitals); },
    [this, f = std::move(f), number = attempt->number] {
      if (attempt.is(number))
        f();
    });
}

void worker_group_state::learn(host_snapshots& x, bool examined) {
  if (!attempt.is(x.attempt))
    return;
  for (auto& shown : x.ranks) {
    if (!attempt->tracker.knows(shown.rank))
      continue;
    auto& known = attempt->seen[static_cast<std::size_t>(shown.rank)];
    // What waits are judged by stays that of one look.
    if (examined)
      known.vitals = shown.vitals;
    else
      known = std::move(shown);
  }
}

void worker_group_state::watch_ranks() {
  self->run_delayed(attempt->monitor.interval(),
                    [this, number = attempt->number] {
                      if (attempt.is(number))
                        check_waits([this] { watch_ranks(); });
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
    if (!attempt.is(number))
      return;
    attempt->limit_timer = false;
    check_waits([this] { watch_limit(); });
  });
}

void worker_group_state::check_waits(std::function<void()> next) {
  if (attempt->tracker.end_ordered())
    return;
  look({}, [this, next = std::move(next)] {
    if (attempt->tracker.end_ordered())
      return;
    look_for_stopped();
    auto judge = [this, next] {
      judge_waits();
      if (attempt && !attempt->tracker.end_ordered())
        next();
    };
    if (auto ranks = ranks_to_examine(); ranks.empty())
      judge();
    else
      look(ranks, judge);
  });
}

std::vector<int> worker_group_state::ranks_to_examine() const {
  std::vector<int> result;
  for (auto& wait : waits())
    result.insert(result.end(), wait.missing.begin(), wait.missing.end());
  if (!args.plan.in_process)
    if (auto suspected = attempt->meetings.mismatch(calls_seen()))
      result.insert(result.end(), suspected->ranks.begin(),
                    suspected->ranks.end());
  std::ranges::sort(result);
  auto again = std::ranges::unique(result);
  result.erase(again.begin(), again.end());
  return result;
}

void worker_group_state::judge_waits() {
  if (attempt->tracker.end_ordered())
    return;
  check_collectives();
  if (!attempt || attempt->tracker.end_ordered())
    return;
  show_progress();
  auto now = args.now();
  auto since = std::exchange(attempt->last_check, now).value_or(now);
  attempt->monitor.checked_after(
    std::chrono::duration_cast<hang_monitor::duration>(now - since));
  auto verdict = attempt->monitor.check(
    waits(), [this](int rank) { return look_at(rank); }, self->clock().now());
  attempt->named_wait = attempt->monitor.has_named();
  auto stacks = verdict.show_stacks;
  show_stacks_of(stacks, [this, verdict = std::move(verdict)](auto& shown) {
    act_on(verdict, shown);
  });
}

void worker_group_state::show_stacks_of(
  const std::vector<int>& ranks,
  std::function<void(const std::vector<int>&)> f) {
  if (ranks.empty()) {
    f({});
    return;
  }
  auto shown = std::make_shared<std::vector<int>>();
  ask_each<stacks_shown>(
    self, agents_of_ranks(), show_stacks{attempt->number, ranks},
    [shown](const stacks_shown& x) {
      shown->insert(shown->end(), x.ranks.begin(), x.ranks.end());
    },
    [this, shown, f = std::move(f), number = attempt->number] {
      if (attempt.is(number))
        f(*shown);
    });
}

void worker_group_state::act_on(const hang_verdict& verdict,
                                const std::vector<int>& shown) {
  auto stacks = joined(shown, ", ", [](int rank) {
    return concat(run_layout::logs, '/', stacks_name(rank));
  });
  if (!stacks.empty())
    stacks = "; the stacks of its threads are in " + stacks;
  for (auto& text : verdict.over)
    send(self, driver,
         attempt_warning{attempt->number, text, attempt->named_wait});
  for (auto& text : verdict.named)
    send(self, driver, attempt_warning{attempt->number, text + stacks, true});
  if (attempt->tracker.end_ordered())
    return;
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
  for (int rank = 0; rank < attempt->world_size(); ++rank) {
    auto& loop = attempt->loops[static_cast<std::size_t>(rank)];
    if (loop.ended || !seen(rank).is_stopped)
      loop.stopped.reset();
    else if (!loop.stopped)
      loop.stopped = self->clock().now();
  }
}

std::vector<rank_wait> worker_group_state::waits() const {
  return waits_of(attempt->meetings, attempt->seen, attempt->loops);
}

std::optional<process_vitals> worker_group_state::vitals_of(int rank) const {
  auto result = seen(rank).vitals;
  if (result && !gpus_of(rank).empty())
    result->busy = true;
  return result;
}

rank_look worker_group_state::look_at(int rank) const {
  auto call = attempt->meetings.call_of(rank);
  rank_look result{place_of(seen(rank), call, self->clock().now()),
                   vitals_of(rank)};
  // A loop in a call to the group waits for an answer; others may wait for it
  // in a pending collective. One that waits for another host is idle, too.
  if (result.vitals && !result.vitals->stopped
      && (!call.empty() || waits_for_data(attempt->seen, rank)))
    result.vitals.reset();
  return result;
}

} // namespace troupe::internal
