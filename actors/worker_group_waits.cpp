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
    self, hosts->agents_of_ranks(), look_at_ranks{attempt->number, examined},
    [this, vitals](host_snapshots& x) {
      if (attempt.is(x.attempt))
        attempt->monitor.learn(x.ranks, vitals);
    },
    [this, f = std::move(f), number = attempt->number] {
      if (attempt.is(number))
        f();
    });
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
    attempt->monitor.look_for_stopped(self->clock().now());
    auto judge = [this, next] {
      judge_waits();
      if (attempt && !attempt->tracker.end_ordered())
        next();
    };
    auto ranks = attempt->monitor.ranks_to_examine(attempt->meetings);
    if (ranks.empty())
      judge();
    else
      look(ranks, judge);
  });
}

void worker_group_state::judge_waits() {
  if (attempt->tracker.end_ordered())
    return;
  auto now = self->clock().now();
  if (auto mismatch = attempt->monitor.mismatch(attempt->meetings, now))
    end_for(*mismatch);
  if (!attempt || attempt->tracker.end_ordered())
    return;
  auto& monitor = attempt->monitor;
  if (monitor.advance(moment::clock::now()))
    send(self, driver, epoch_advanced{attempt->number, monitor.progress()});
  auto verdict = monitor.judge(attempt->meetings, now, args.now());
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
    self, hosts->agents_of_ranks(), show_stacks{attempt->number, ranks},
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
         attempt_warning{attempt->number, text,
                         attempt->monitor.has_named_wait()});
  for (auto& text : verdict.named)
    send(self, driver, attempt_warning{attempt->number, text + stacks, true});
  if (attempt->tracker.end_ordered())
    return;
  for (auto& [rank, why] : verdict.hung)
    attempt->tracker.timed_out(rank, why);
  if (!verdict.hung.empty())
    on_failure();
}

} // namespace troupe::internal
