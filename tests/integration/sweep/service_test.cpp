// Sweeps that a service starts in its own actor system.

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/victim.hpp"
#include "tests/integration/sweep/sweep_fixture.hpp"
#include "tests/support/child.hpp"
#include "tests/support/own_system.hpp"
#include "tests/support/sanitized.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

namespace {

/// Part of a closure that throws when it is copied.
struct copied_unwillingly {
  static inline bool refuses = false;

  copied_unwillingly() = default;
  copied_unwillingly(const copied_unwillingly&) {
    if (refuses)
      throw std::runtime_error{"no copy"};
  }
};

/// What an actor of the service has learned of a sweep.
struct learned {
  std::vector<std::string> ended; ///< Trials, with their scores.
  std::promise<sweep_result> end;
};

sweep_observer_actor::behavior_type
sweep_watcher(sweep_observer_actor::pointer self, std::shared_ptr<learned> x) {
  return {
    [x](const trial_ended& one) {
      auto where = fs::path{one.sweep}.filename().string();
      x->ended.push_back(where + '/' + one.content.name + ' '
                         + (one.content.score ? "with a score" : "without"));
    },
    [x, self](const sweep_ended& last) {
      x->end.set_value(last.outcome);
      self->quit();
    },
  };
}

/// The service's actor that all trials report to.
user_callback_actor::behavior_type trial_counter(user_callback_actor::pointer,
                                                 std::shared_ptr<int> reports) {
  return {
    [](const before_run&) { return callback_done{}; },
    [reports](const after_report&) {
      ++*reports;
      return callback_done{};
    },
    [](const after_exception&) { return callback_done{}; },
    [](const after_run&) { return callback_done{}; },
  };
}

} // namespace

class sweep_service_test : public sweep_test {
protected:
  expected<sweep_handle> start(const std::string& name, int last,
                               const settings& cfg = {},
                               train_options options = {}) {
    auto given = run();
    given.run.name = name;
    given.run.callback_actors = std::move(options.run.callback_actors);
    return sweep{
      data_parallel_trainer{train, cfg, given},
      widths(last),
      {.metric = "loss", .searcher = grid_search(), .max_concurrent = 1}}
      .start(system_);
  }

  /// One whose third trial does not end before the file `go` is there.
  expected<sweep_handle> start_waiting(const std::string& name) {
    return start(name, 4, {.go = go_.string()});
  }

  /// Waits until the third trial of *name* has reported.
  void await_third_trial(const std::string& name) {
    wait_for(storage_.path(), [&] {
      return bytes_of(storage_ / name / "trial-0002" / "journal.jsonl")
               .find("\"batch\":0")
             != std::string::npos;
    });
  }

  std::pair<std::shared_ptr<learned>, sweep_observer_actor> watcher() {
    auto x = std::make_shared<learned>();
    return {x, system_.spawn(sweep_watcher, x)};
  }

  fs::path go_ = storage_ / "go";

  own_system system_;
};

TEST_F(sweep_service_test, two_at_once_tell_their_followers_how_they_end) {
  auto first = start_waiting("first");
  auto second = start_waiting("second");
  ASSERT_TRUE(first && second);
  std::vector<std::shared_ptr<learned>> all;
  for (auto handle : {&*first, &*second}) {
    auto [x, actor] = watcher();
    handle->follow(actor);
    all.push_back(x);
  }
  await_third_trial("first");
  await_third_trial("second");
  first->abort("the service has seen enough");
  auto stopped = all[0]->end.get_future().get();
  ASSERT_TRUE(stopped.error);
  EXPECT_EQ(stopped.error->code, ec::stopped);
  EXPECT_EQ(stopped.error->message,
            "the service has seen enough; start it again to resume it");
  EXPECT_EQ(stopped.path, storage_ / "first");
  ASSERT_EQ(stopped.trials.size(), 3u);
  EXPECT_EQ(stopped.trials[2].status, run_status_kind::running)
    << "to be resumed";
  write_bytes(go_, "");
  auto whole = all[1]->end.get_future().get();
  EXPECT_FALSE(whole.error) << whole.error->message;
  EXPECT_EQ(whole.trials.size(), 4u);
  EXPECT_TRUE(whole.best());
  EXPECT_EQ(second->wait().trials, whole.trials);
  EXPECT_EQ(first->wait().error, stopped.error);
}

TEST_F(sweep_service_test, tells_of_a_trial_whose_end_ends_the_sweep) {
  auto handle =
    sweep{data_parallel_trainer{train, settings{.go = go_.string()}, run()},
          {{"width", choice({3})}},
          {.metric = "los", .searcher = grid_search()}}
      .start(system_);
  ASSERT_TRUE(handle) << handle.error().message;
  auto [x, actor] = watcher();
  handle->follow(actor);
  write_bytes(go_, "");
  auto end = x->end.get_future().get();
  ASSERT_TRUE(end.error);
  EXPECT_THAT(end.error->message, HasSubstr("metric 'los'"));
  EXPECT_THAT(x->ended, ElementsAre("search/trial-0000 without"));
}

TEST_F(sweep_service_test, options_that_cannot_be_copied_are_an_error) {
  sweep x{data_parallel_trainer{train, settings{}, run()},
          widths(1),
          {.metric = "loss",
           .searcher = grid_search(),
           .prepare = [unwilling = copied_unwillingly{}](const trial&,
                                                         run_config&) {}}};
  copied_unwillingly::refuses = true;
  auto handle = x.start(system_);
  copied_unwillingly::refuses = false;
  ASSERT_FALSE(handle);
  EXPECT_THAT(handle.error().message, HasSubstr("the sweep could not start"));
}

TEST_F(sweep_service_test, tells_of_each_trial_and_late_followers_of_the_end) {
  auto handle = start_waiting("search");
  ASSERT_TRUE(handle) << handle.error().message;
  await_third_trial("search");
  auto [x, actor] = watcher();
  handle->follow(actor);
  write_bytes(go_, "");
  auto outcome = x->end.get_future().get();
  EXPECT_THAT(x->ended, ElementsAre("search/trial-0002 with a score",
                                    "search/trial-0003 with a score"));
  auto [late, another] = watcher();
  handle->follow(another);
  EXPECT_EQ(late->end.get_future().get().trials, outcome.trials);
}

TEST_F(sweep_service_test, a_name_is_free_once_the_end_is_known) {
  auto handle = start_waiting("search");
  ASSERT_TRUE(handle) << handle.error().message;
  await_third_trial("search");
  auto twice = start_waiting("search");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ec::conflict);
  EXPECT_THAT(twice.error().message, HasSubstr("this process runs the sweep"));
  auto [x, actor] = watcher();
  handle->follow(actor);
  handle->preempt();
  write_bytes(go_, "");
  auto outcome = x->end.get_future().get();
  EXPECT_EQ(outcome.error->message,
            "the sweep was preempted; start it again to resume it");
  auto next = start_waiting("search");
  ASSERT_TRUE(next) << next.error().message;
  outcome = next->wait();
  EXPECT_FALSE(outcome.error) << outcome.error->message;
  ASSERT_EQ(outcome.trials.size(), 4u);
  EXPECT_EQ(outcome.trials[2].reports, 3u) << "resumed from its checkpoint";
}

TEST_F(sweep_service_test, shows_the_trials_under_way) {
  auto handle = start_waiting("search");
  ASSERT_TRUE(handle) << handle.error().message;
  EXPECT_EQ(handle->status().metric, "loss");
  auto is_seen = [&] {
    auto now = handle->status();
    return now.ended == 2 && now.running.size() == 1
           && now.running[0].name == "trial-0002"
           && now.running[0].reports == 1;
  };
  wait_for(storage_.path(), is_seen);
  handle->abort();
  handle->wait();
  EXPECT_TRUE(handle->status().running.empty());
  EXPECT_EQ(handle->threads_left_behind(), 0);
}

TEST_F(sweep_service_test, trials_report_to_an_actor_of_the_service) {
  auto reports = std::make_shared<int>(0);
  auto actor = system_.spawn(trial_counter, reports);
  train_options options;
  options.run.callback_actors = {as_callback(actor, "counter")};
  auto handle = start("search", 2, {}, options);
  ASSERT_TRUE(handle) << handle.error().message;
  auto outcome = handle->wait();
  EXPECT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(*reports, 6);
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_F(sweep_service_test, the_destructor_of_a_handle_stops_the_sweep) {
  {
    auto handle = start_waiting("search");
    ASSERT_TRUE(handle) << handle.error().message;
    await_third_trial("search");
  }
  auto run = result::from_path(storage_ / "search" / "trial-0002");
  ASSERT_TRUE(run);
  EXPECT_EQ(run->status, run_status_kind::aborted);
}

TEST_F(sweep_service_test, what_can_never_work_is_an_error_of_the_start) {
  auto refused = start("search", 2, {}).and_then([&](sweep_handle x) {
    x.wait();
    return sweep{data_parallel_trainer{train, settings{}, run()},
                 {{"depth", integers(1, 2)}},
                 {.metric = "loss", .searcher = grid_search()}}
      .start(system_);
  });
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("there is no field 'depth'"));
}

// The sweep's thread is not in the forked process.
TEST_F(sweep_service_test, a_forked_process_neither_ends_it_nor_waits_for_it) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  auto handle = start_waiting("search");
  ASSERT_TRUE(handle) << handle.error().message;
  await_third_trial("search");
  auto status = run_in_child([&] {
    ::alarm(20); // Ends it if it waits.
    handle->abort();
    auto outcome = handle->wait();
    auto is_error = outcome.error && outcome.error->code == ec::invalid_argument
                    && handle->status().metric.empty();
    { auto gone = std::move(*handle); }
    ::_exit(is_error ? 0 : 1);
  });
  EXPECT_EQ(status, 0);
  write_bytes(go_, "");
  auto outcome = handle->wait();
  EXPECT_FALSE(outcome.error) << outcome.error->message;
}

} // namespace troupe::internal::test
