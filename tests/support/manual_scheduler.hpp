#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include "troupe/actors/compat/messaging.hpp"

#if CAF_MAJOR_VERSION >= 1
#include <caf/action.hpp>
#include <caf/actor_clock.hpp>
#include <caf/detail/actor_system_access.hpp>
#include <caf/disposable.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler.hpp>
#else
#include <caf/scheduler/test_coordinator.hpp>
#endif

// An actor system whose actors and timers run when the test says so. CAF 0.18
// has a scheduler for that; CAF 1.1 has one that only its own tests can link.
namespace troupe::internal::test {

#if CAF_MAJOR_VERSION >= 1

/// Keeps the actors that have something to do until the test runs them.
class manual_coordinator : public caf::scheduler {
public:
  void schedule(caf::resumable* x) override { jobs.push_back(x); }
  void delay(caf::resumable* x) override { schedule(x); }
  void start() override {}

  void stop() override {
    run_jobs_filtered([](caf::resumable*) { return true; });
  }

  /// Runs the jobs that *may_run*, one message each, in turns.
  template <class Predicate>
  void run_jobs_filtered(Predicate may_run) {
    for (;;) {
      auto next = std::ranges::find_if(jobs, may_run);
      if (next == jobs.end())
        return;
      auto* job = *next;
      jobs.erase(next);
      if (job->resume(this, 1) == caf::resumable::resume_later)
        jobs.push_front(job);
      else
        intrusive_ptr_release(job);
    }
  }

  std::deque<caf::resumable*> jobs; ///< With a reference to each.
};

class manual_clock : public caf::actor_clock {
public:
  time_point now() const noexcept override { return time; }

  using caf::actor_clock::schedule;

  caf::disposable schedule(time_point due, caf::action f) override {
    timers.emplace(due, f);
    return std::move(f).as_disposable();
  }

  time_point time{duration_type{1}};
  std::multimap<time_point, caf::action> timers;
};

#endif

class manual_scheduler {
public:
  using duration = caf::timespan;

  static std::unique_ptr<caf::actor_system>
  make_system(caf::actor_system_config& config) {
#if CAF_MAJOR_VERSION >= 1
    auto set_up = [](caf::actor_system& self, caf::actor_system_config&,
                     void*) {
      caf::detail::actor_system_access access{self};
      access.clock(std::make_unique<manual_clock>());
      access.scheduler(std::make_unique<manual_coordinator>());
    };
    return std::make_unique<caf::actor_system>(config, set_up, nullptr);
#else
    config.set("caf.scheduler.policy", "testing");
    return std::make_unique<caf::actor_system>(config);
#endif
  }

  explicit manual_scheduler(caf::actor_system& system)
    : impl_(dynamic_cast<coordinator&>(system.scheduler())),
      clock_(dynamic_cast<clock&>(system.clock())) {}

  /// Runs the actors that *may_run* and have something to do.
  template <class Predicate>
  void run(Predicate may_run) {
    impl_.run_jobs_filtered(may_run);
  }

  template <class Predicate>
  bool can_run(Predicate may_run) const {
    return std::ranges::any_of(impl_.jobs, may_run);
  }

  /// Returns how many timers fired.
  std::size_t advance(duration time) {
#if CAF_MAJOR_VERSION >= 1
    clock_.time += time;
    std::size_t fired = 0;
    auto& timers = clock_.timers;
    for (; !timers.empty() && timers.begin()->first <= clock_.time; ++fired)
      timers.extract(timers.begin()).mapped().run();
    return fired;
#else
    return impl_.advance_time(time);
#endif
  }

  void drop_timers() {
#if CAF_MAJOR_VERSION >= 1
    clock_.timers.clear();
#else
    clock_.schedule.clear();
#endif
  }

private:
#if CAF_MAJOR_VERSION >= 1
  using coordinator = manual_coordinator;
  using clock = manual_clock;
#else
  using coordinator = caf::scheduler::test_coordinator;
  using clock = caf::detail::test_actor_clock;
#endif

  coordinator& impl_;
  clock& clock_;
};

} // namespace troupe::internal::test
