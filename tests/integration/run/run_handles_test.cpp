// Runs that a service starts in its own actor system.

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include <unistd.h>

#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/run_test.hpp"
#include "tests/support/child.hpp"
#include "tests/support/own_system.hpp"
#include "tests/support/sanitized.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/callbacks/csv/csv.hpp"

namespace troupe::internal::test {

/// A service with an actor system of its own.
class service_test : public run_test {
protected:
  expected<run_handle> start(const fault_plan& plan, run_config settings,
                             placement where = placement::processes) {
    return data_parallel_trainer{
      counting_loop, plan,
      train_options{.scaling = {.num_workers = 2, .where = where},
                    .run = std::move(settings)}}
      .start(system_);
  }

  /// A run that does not end by itself.
  expected<run_handle> start_endless(const std::string& name = "run") {
    return start({.steps = 1'000'000'000, .checkpoint_by = -1}, config(name));
  }

  /// Waits until *x* has made *more* reports.
  static void await_reports(const run_handle& x, std::uint64_t more) {
    auto before = x.status().reports;
    while (x.status().reports < before + more)
      std::this_thread::yield();
  }

  /// An actor that keeps what it gets of *T*.
  template <class T>
  struct listener {
    std::shared_ptr<std::promise<T>> heard =
      std::make_shared<std::promise<T>>();

    T wait() const { return heard->get_future().get(); }
  };

  run_closed_actor spawn(const listener<run_closed>& x) {
    return system_.spawn(
      [x](run_closed_actor::pointer) -> run_closed_actor::behavior_type {
        return {[x](run_closed& y) { x.heard->set_value(std::move(y)); }};
      });
  }

  own_system system_;
};

TEST_F(service_test, a_service_starts_asks_and_stops_a_run_in_its_own_system) {
  auto handle = start_endless();
  ASSERT_TRUE(handle) << handle.error().message;
  caf::scoped_actor self{system_};
  run_status status;
  while (status.reports < 10)
    request(self, handle->control(), std::chrono::seconds{10}, get_status{})
      .receive([&](run_status& x) { status = std::move(x); },
               [&](caf::error& reason) { FAIL() << caf::to_string(reason); });
  EXPECT_EQ(status.world_size, 2);
  EXPECT_EQ(status.state, run_state::running);
  handle->abort();
  auto outcome = handle->wait();
  EXPECT_EQ(outcome.status, run_status_kind::aborted);
  EXPECT_EQ(handle->status().state, run_state::aborted);
}

TEST_F(service_test, several_threads_may_wait_for_one_handle) {
  auto settings = config();
  settings.trackers = {csv_tracker()};
  auto handle = start({.steps = 3}, settings);
  ASSERT_TRUE(handle) << handle.error().message;
  std::vector<result> outcomes(4);
  {
    std::vector<std::jthread> threads;
    for (auto& x : outcomes)
      threads.emplace_back([&] { x = handle->wait(); });
  }
  for (auto& x : outcomes) {
    EXPECT_EQ(x.status, run_status_kind::finished);
    EXPECT_THAT(x.unsent, testing::IsEmpty());
  }
  EXPECT_EQ(handle->wait().status, run_status_kind::finished);
}

// The actors' threads are not in the forked process.
TEST_F(service_test, a_forked_process_neither_ends_a_run_nor_waits_for_it) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  auto handle = start_endless();
  ASSERT_TRUE(handle) << handle.error().message;
  await_reports(*handle, 3);
  auto status = run_in_child([&] {
    ::alarm(20); // Ends it if it waits.
    handle->preempt();
    handle->abort();
    auto outcome = handle->wait();
    auto is_error = outcome.error && outcome.error->code == ec::invalid_argument
                    && handle->status().state == run_state::errored;
    ::_exit(is_error ? 0 : 1);
  });
  EXPECT_EQ(status, 0);
  await_reports(*handle, 3);
  EXPECT_EQ(handle->status().state, run_state::running);
  handle->abort();
  EXPECT_EQ(handle->wait().status, run_status_kind::aborted);
}

TEST_F(service_test, a_handle_ends_its_run_before_it_takes_another) {
  auto handle = start_endless("first");
  auto other = start_endless("second");
  ASSERT_TRUE(handle && other);
  await_reports(*handle, 3);
  *handle = std::move(*other);
  EXPECT_EQ(result::from_path(storage_ / "first").value().status,
            run_status_kind::aborted);
  await_reports(*handle, 3);
  auto& same = *handle;
  *handle = std::move(same);
  EXPECT_EQ(handle->status().state, run_state::running);
  handle->abort();
  EXPECT_EQ(handle->wait().status, run_status_kind::aborted);
}

TEST_F(run_test, a_run_whose_driver_dies_returns_an_error_and_resumes) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  {
    own_system system;
    auto handle =
      data_parallel_trainer{counting_loop, fault_plan{.steps = 1'000'000'000},
                            options}
        .start(system);
    ASSERT_TRUE(handle) << handle.error().message;
    while (handle->status().reports < 3)
      std::this_thread::yield();
    caf::anon_send_exit(handle->control(), caf::exit_reason::kill);
    auto outcome = handle->wait();
    EXPECT_EQ(outcome.status, run_status_kind::errored);
    ASSERT_TRUE(outcome.error);
    EXPECT_NE(outcome.error->message.find("the driver of the run died"),
              std::string::npos)
      << outcome.error->message;
  }
  auto next = run({.steps = 5}, options);
  EXPECT_EQ(next.status, run_status_kind::finished);
}

// The handle still exists: it returns status and result.
TEST_F(service_test, the_name_of_a_run_is_free_once_it_was_waited_for) {
  for (auto where : {placement::processes, placement::in_process}) {
    auto name = where == placement::processes ? "processes" : "threads";
    auto handle = start({.steps = 1'000'000'000}, config(name), where);
    ASSERT_TRUE(handle) << handle.error().message;
    await_reports(*handle, 3);
    handle->abort();
    auto first = handle->wait();
    ASSERT_EQ(first.status, run_status_kind::aborted);
    ASSERT_TRUE(first.checkpoint);
    auto saved = bytes_of(first.checkpoint->path() / "step.txt");
    auto steps = std::stoi(saved);
    auto next =
      run({.steps = steps + 2},
          {.scaling = {.num_workers = 2, .where = where}, .run = config(name)});
    EXPECT_EQ(next.status, run_status_kind::finished)
      << name << ": " << (next.error ? next.error->message : "");
    EXPECT_EQ(next.metrics.at("step"), metric_value{steps + 1});
    EXPECT_EQ(next.attempts, 2u);
    EXPECT_EQ(handle->status().state, run_state::aborted);
  }
}

TEST_F(service_test, an_actor_learns_that_a_run_is_closed) {
  for (auto end : {run_status_kind::finished, run_status_kind::aborted}) {
    auto settings = config(std::string{to_string(end)});
    settings.trackers = {csv_tracker()};
    auto handle =
      start({.steps = 1'000'000'000, .checkpoint_by = -1}, settings);
    ASSERT_TRUE(handle) << handle.error().message;
    listener<run_closed> one, other, late;
    ASSERT_TRUE(handle->when_closed(spawn(one)));
    ASSERT_TRUE(handle->when_closed(spawn(other)));
    await_reports(*handle, 3);
    if (end == run_status_kind::finished)
      handle->finish("it has seen enough");
    else
      handle->abort();
    auto closed = one.wait();
    EXPECT_EQ(closed.path, storage_ / *settings.name);
    EXPECT_EQ(other.wait().run_id, closed.run_id);
    // Trackers are complete, and the name is free.
    auto outcome = result::from_path(closed.path).value();
    EXPECT_EQ(outcome.status, end);
    auto rows = bytes_of(closed.path / "metrics.csv");
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(rows, '\n')),
              outcome.metrics_history()->size() + 1);
    EXPECT_EQ(outcome.stop_reason,
              end == run_status_kind::finished ? "it has seen enough" : "");
    if (end == run_status_kind::aborted) {
      auto next = run({.steps = 1}, {.scaling = {.num_workers = 2},
                                     .run = config(*settings.name)});
      EXPECT_EQ(next.status, run_status_kind::finished);
    }
    // The handle still tells.
    EXPECT_EQ(handle->wait().status, end);
    ASSERT_TRUE(handle->when_closed(spawn(late)));
    EXPECT_EQ(late.wait().run_id, closed.run_id);
  }
}

/// Owns a run as long as it exists itself, and ends at once.
class run_owner : public run_closed_actor::base {
public:
  run_owner(caf::actor_config& settings, run_handle run,
            std::shared_ptr<std::promise<void>> gone)
    : run_closed_actor::base(settings), run_(std::move(run)),
      gone_(std::move(gone)) {}

  ~run_owner() override {
    run_.reset();
    gone_->set_value();
  }

  run_closed_actor::behavior_type make_behavior() override {
    EXPECT_TRUE(run_->when_closed(run_closed_actor{this}));
    quit();
    return {[](const run_closed&) {}};
  }

private:
  std::optional<run_handle> run_;
  std::shared_ptr<std::promise<void>> gone_;
};

// The thread that sends the message has the last handle of the actor that owns
// the run: it must not wait for itself.
TEST_F(service_test, a_run_goes_with_an_actor_that_only_its_message_holds) {
  auto handle = start({.steps = 20}, config());
  ASSERT_TRUE(handle) << handle.error().message;
  auto gone = std::make_shared<std::promise<void>>();
  (void) system_.spawn<run_owner>(std::move(*handle), gone);
  gone->get_future().get();
  EXPECT_EQ(result::from_path(run_path())->status, run_status_kind::finished);
}

/// Of an actor that owns a run.
struct owner_state {
  std::optional<run_handle> run;
};

// Its scheduler has one thread, on which the actor waits for the run.
TEST_F(service_test, a_run_ends_with_an_actor_that_owns_it) {
  for (auto where : {placement::processes, placement::in_process}) {
    auto name = where == placement::processes ? "processes" : "threads";
    auto handle =
      start({.steps = 1'000'000'000, .checkpoint_by = -1}, config(name), where);
    ASSERT_TRUE(handle) << handle.error().message;
    await_reports(*handle, 3);
    auto owner =
      system_.spawn([&](run_closed_actor::stateful_pointer<owner_state> self)
                      -> run_closed_actor::behavior_type {
        state_of(self).run.emplace(std::move(*handle));
        return {[](const run_closed&) {}};
      });
    caf::anon_send_exit(owner, caf::exit_reason::user_shutdown);
    caf::scoped_actor self{system_};
    self->wait_for(owner);
    EXPECT_EQ(result::from_path(storage_ / name)->status,
              run_status_kind::aborted)
      << name;
  }
}

TEST_F(service_test, an_actor_may_let_a_run_go_when_it_is_closed) {
  auto handle = start({.steps = 20}, config());
  ASSERT_TRUE(handle) << handle.error().message;
  listener<run_status_kind> seen;
  system_.spawn([&](run_closed_actor::stateful_pointer<owner_state> self)
                  -> run_closed_actor::behavior_type {
    auto& run = state_of(self).run;
    run.emplace(std::move(*handle));
    EXPECT_TRUE(run->when_closed(run_closed_actor{self}));
    return {[self, &run, seen](const run_closed&) {
      auto outcome = run->wait().status;
      run.reset();
      self->quit();
      seen.heard->set_value(outcome);
    }};
  });
  EXPECT_EQ(seen.wait(), run_status_kind::finished);
}

// The handle is gone before the run has ended.
TEST_F(service_test, a_handle_that_goes_tells_that_its_run_is_closed) {
  listener<run_closed> who;
  {
    auto handle = start_endless();
    ASSERT_TRUE(handle) << handle.error().message;
    await_reports(*handle, 3);
    ASSERT_TRUE(handle->when_closed(spawn(who)));
  }
  EXPECT_EQ(result::from_path(who.wait().path)->status,
            run_status_kind::aborted);
}

TEST_F(service_test, two_runs_at_once_in_one_process_do_not_meet) {
  std::vector<run_handle> handles;
  for (auto name : {"one", "two"}) {
    auto handle = start({.steps = 20}, config(name));
    ASSERT_TRUE(handle) << handle.error().message;
    handles.push_back(std::move(*handle));
  }
  for (auto& handle : handles) {
    auto outcome = handle.wait();
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_EQ(outcome.metrics.at("step"), metric_value{19});
  }
}

} // namespace troupe::internal::test
