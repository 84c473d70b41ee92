#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include "troupe/actors/compat/messaging.hpp"

#if CAF_VERSION >= 10000
#include <caf/action.hpp>
#include <caf/actor_clock.hpp>
#include <caf/actor_registry.hpp>
#include <caf/actor_system_module.hpp>
#include <caf/console_printer.hpp>
#include <caf/detail/actor_system_impl.hpp>
#include <caf/detail/meta_object.hpp>
#include <caf/local_actor.hpp>
#include <caf/logger.hpp>
#include <caf/node_id.hpp>
#include <caf/scheduler.hpp>
#include <caf/telemetry/metric_registry.hpp>
#else
#include <caf/scheduler/test_coordinator.hpp>
#endif

// An actor system whose actors and timers run when the test says so. CAF 0.18
// has a scheduler for that. The one of CAF 1.x works only inside CAF's own test
// framework, and its actor systems take no other clock: hence a system of ours.
namespace troupe::internal::test {

#if CAF_VERSION < 10000

class manual_scheduler {
public:
  using duration = caf::timespan;

  static std::unique_ptr<caf::actor_system>
  make_system(caf::actor_system_config& config) {
    config.set("caf.scheduler.policy", "testing");
    return std::make_unique<caf::actor_system>(config);
  }

  explicit manual_scheduler(caf::actor_system& system)
    : impl_(
      dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler())) {}

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
  std::size_t advance(duration time) { return impl_.advance_time(time); }

  void drop_timers() { impl_.clock().schedule.clear(); }

private:
  caf::scheduler::test_coordinator& impl_;
};

#else

/// Keeps the actors that have something to do until the test runs them.
class manual_queue : public caf::scheduler {
public:
  struct job {
    caf::resumable_ptr what;
    std::uint64_t event;
  };

  void schedule(caf::resumable_ptr what, std::uint64_t event) override {
    jobs.push_back({std::move(what), event});
  }

  void delay(caf::resumable_ptr what, std::uint64_t event) override {
    schedule(std::move(what), event);
  }

  bool is_system_scheduler() const noexcept override { return true; }
  void start() override {}
  void stop() override {}

  std::deque<job> jobs;
};

class manual_clock : public caf::actor_clock {
public:
  time_point now() const noexcept override { return time; }

  using caf::actor_clock::schedule;

  caf::disposable schedule(time_point due, caf::action f) override {
    return timers.emplace(due, std::move(f))->second.as_disposable();
  }

  time_point time{duration_type{1}};
  std::multimap<time_point, caf::action> timers;
};

/// Finds nothing: only actors of other systems are looked up.
class empty_registry : public caf::actor_registry {
public:
  void erase(caf::actor_id) override {}
  void erase(const std::string&) override {}
  name_map named_actors() const override { return {}; }

private:
  caf::strong_actor_ptr get_impl(caf::actor_id) const override { return {}; }
  caf::strong_actor_ptr get_impl(const std::string&) const override {
    return {};
  }
  void put_impl(caf::actor_id, caf::strong_actor_ptr) override {}
  void put_impl(const std::string&, caf::strong_actor_ptr) override {}
};

class quiet_logger : public caf::logger {
public:
  // Lives as long as its actor system.
  void ref() const noexcept override {}
  void deref() const noexcept override {}
  bool accepts(unsigned, std::string_view) override { return false; }

private:
  void do_log(caf::log::event_ptr&&) override {}
};

/// An actor system without threads.
class manual_system : public caf::detail::actor_system_impl {
public:
  explicit manual_system(caf::actor_system_config& config) : config_(config) {
    // One message each, in turns.
    config_.set("caf.scheduler.max-throughput", std::size_t{1});
  }

  void start(caf::actor_system&) override {
    node_ = caf::node_id::default_data::local(config_);
  }

  void stop() override {
    // What they hold may release actors, which may add some.
    while (!queue_.jobs.empty() || !clock_.timers.empty()) {
      std::exchange(queue_.jobs, {});
      std::exchange(clock_.timers, {});
    }
    CAF_SET_LOGGER_SYS(nullptr);
  }

  void launch(caf::local_actor* actor, caf::scheduler* context,
              caf::spawn_options options) override {
    if (!caf::has_hide_flag(options)) {
      actor->setf(caf::abstract_actor::is_registered_flag);
      inc_running_actors_count(actor->id());
    }
    actor->launch(nullptr, context);
  }

  std::size_t inc_running_actors_count(caf::actor_id) override {
    return ++running_;
  }

  std::size_t dec_running_actors_count(caf::actor_id) override {
    return --running_;
  }

  caf::telemetry::actor_metrics make_actor_metrics(std::string_view) override {
    return {};
  }

  void do_print(caf::term, const char* text, std::size_t size) override {
    std::fwrite(text, 1, size, stderr);
  }

  caf::actor_clock& clock() noexcept override { return clock_; }
  caf::scheduler& scheduler() override { return queue_; }
  caf::logger& logger() override { return logger_; }
  caf::actor_registry& registry() override { return registry_; }
  caf::actor_system_config& config() override { return config_; }
  const caf::actor_system_config& config() const override { return config_; }
  const caf::node_id& node() const override { return node_; }
  void set_node(caf::node_id x) override { node_ = std::move(x); }
  caf::actor_id next_actor_id() override { return ++ids_; }
  caf::actor_id latest_actor_id() const override { return ids_; }
  std::size_t running_actors_count() const override { return running_; }
  std::size_t detached_actors() const noexcept override { return 0; }
  bool await_actors_before_shutdown() const override { return false; }
  void await_actors_before_shutdown(bool) override {}
  void await_running_actors_count_equal(std::size_t, caf::timespan) override {}
  void thread_started(caf::thread_owner) override {}
  void thread_terminates() override {}
  void message_rejected(caf::abstract_actor*) override {}
  void max_throughput_reached(caf::abstract_actor*) override {}
  void redirect_text_output(std::unique_ptr<caf::console_printer>) override {}
  caf::detail::private_thread* acquire_private_thread() override {
    return nullptr;
  }
  void release_private_thread(caf::detail::private_thread*) override {}
  caf::detail::mailbox_factory* mailbox_factory() override { return nullptr; }
  caf::telemetry::metric_registry& metrics() noexcept override {
    return metrics_;
  }
  const caf::telemetry::metric_registry& metrics() const noexcept override {
    return metrics_;
  }
  caf::detail::global_meta_objects_guard_type
  meta_objects_guard() const noexcept override {
    return guard_;
  }
  std::span<std::unique_ptr<caf::actor_system_module>> modules() override {
    return modules_;
  }

private:
  caf::actor_system_config& config_;
  manual_clock clock_;
  manual_queue queue_;
  empty_registry registry_;
  quiet_logger logger_;
  caf::node_id node_;
  caf::actor_id ids_ = 0;
  std::size_t running_ = 0;
  caf::telemetry::metric_registry metrics_;
  caf::detail::global_meta_objects_guard_type guard_ =
    caf::detail::global_meta_objects_guard();
  std::array<std::unique_ptr<caf::actor_system_module>,
             caf::actor_system_module::num_ids>
    modules_;
};

class manual_scheduler {
public:
  using duration = caf::timespan;

  static std::unique_ptr<caf::actor_system>
  make_system(caf::actor_system_config& config) {
    return std::make_unique<caf::actor_system>(
      std::make_unique<manual_system>(config));
  }

  explicit manual_scheduler(caf::actor_system& system)
    : queue_(dynamic_cast<manual_queue&>(system.scheduler())),
      clock_(dynamic_cast<manual_clock&>(system.clock())) {}

  /// Runs the actors that *may_run* and have something to do.
  template <class Predicate>
  void run(Predicate may_run) {
    auto& jobs = queue_.jobs;
    for (;;) {
      auto next = std::ranges::find_if(jobs, may_run, actor_of);
      if (next == jobs.end())
        return;
      auto job = std::move(*next);
      jobs.erase(next);
      job.what->resume(&queue_, job.event);
    }
  }

  template <class Predicate>
  bool can_run(Predicate may_run) const {
    return std::ranges::any_of(queue_.jobs, may_run, actor_of);
  }

  /// Returns how many timers fired.
  std::size_t advance(duration time) {
    clock_.time += time;
    std::size_t fired = 0;
    auto& timers = clock_.timers;
    for (; !timers.empty() && timers.begin()->first <= clock_.time; ++fired)
      timers.extract(timers.begin()).mapped().run();
    return fired;
  }

  void drop_timers() { clock_.timers.clear(); }

private:
  static caf::resumable* actor_of(const manual_queue::job& x) {
    return x.what.get();
  }

  manual_queue& queue_;
  manual_clock& clock_;
};

#endif

} // namespace troupe::internal::test
