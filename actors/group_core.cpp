#include "troupe/actors/group_core.hpp"

#include <utility>

#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

group_attempt::group_attempt(worker_group_actor::pointer self,
                             const start_attempt& x, const group_plan& plan,
                             std::vector<bool> have_gpus)
  : first_report(x.first_report), resume(x.resume),
    tracker(static_cast<int>(have_gpus.size())),
    meetings(tracker.world_size(), x.first_report), store(self),
    monitor(std::move(have_gpus),
            {plan.report_timeout, plan.hang_timeout, plan.in_process}),
    excuses(plan.world.is_elastic()),
    causes({plan.exit_timeout, plan.stop_timeout, plan.in_process}) {}

void group_core::warn(std::string text, bool waits) {
  tell_driver(attempt_warning{attempt->number, std::move(text), waits});
}

void group_core::after(std::chrono::milliseconds limit, std::function<void()> f,
                       bool again) {
  auto due = args.now() + limit;
  self->run_delayed(limit, [this, limit, due, again, f = std::move(f),
                            number = attempt->number]() mutable {
    if (!attempt.is(number))
      return;
    // Messages that ranks sent while the driver was stopped come after this.
    if (again && stood_still(args.now() - due, limit.zero()))
      after(limit, std::move(f), false);
    else
      f();
  });
}

void group_core::look(const std::vector<int>& examined,
                      std::function<void()> f) {
  auto vitals = !examined.empty();
  hosts->ask<host_snapshots>(
    look_at_ranks{attempt->number, examined},
    [this, vitals](const host_snapshots& x) {
      if (attempt.is(x.attempt))
        attempt->monitor.learn(x.ranks, vitals);
    },
    [this, f = std::move(f), number = attempt->number] {
      if (attempt.is(number))
        f();
    });
}

} // namespace troupe::internal
