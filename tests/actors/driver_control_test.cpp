// Runs that callbacks and other actors end, and what those that follow one
// receive.

#include <set>

#include "tests/actors/driver_fixture.hpp"

namespace troupe::internal::test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// A callback that gives an order in the hook of the given name.
struct ordering_callback : recorded_callback {
  void after_report(const run_context& run, const std::vector<metrics>& values,
                    const std::optional<checkpoint>& data) override {
    recorded_callback::after_report(run, values, data);
    give(run, "after_report");
  }
  void after_state_change(const run_context& run, run_state from,
                          run_state to) override {
    calls.push_back("state " + std::string{to_string(from)} + " to "
                    + std::string{to_string(to)});
    give(run, "state");
  }
  void after_group_start(const run_context& run) override {
    calls.push_back("group_start " + std::to_string(run.attempt) + " of "
                    + std::to_string(run.world_size));
    give(run, "group_start");
  }
  void after_group_end(const run_context& run, const error& reason) override {
    calls.push_back("group_end " + std::to_string(run.attempt) + ' '
                    + std::string{to_string(reason.code)});
    give(run, "group_end");
  }

  void give(const run_context& run, const std::string& hook) const {
    if (hook == in)
      order(run.control);
  }

  std::string in;
  std::function<void(const run_control&)> order;
};

struct follower_log {
  std::vector<std::string> heard;
  std::set<std::string> runs;    ///< By id: of all that it heard.
  std::vector<run_order> orders; ///< Given with the answer to a report.
  bool keeps_quiet = false;
  std::vector<caf::typed_response_promise<callback_done>> open = {};
};

run_observer_actor::behavior_type
logging_follower(run_observer_actor::pointer self,
                 std::shared_ptr<follower_log> log) {
  auto hear = [self, log](const std::string& run,
                          std::string what) -> caf::result<callback_done> {
    log->runs.insert(run);
    log->heard.push_back(std::move(what));
    if (!log->keeps_quiet)
      return callback_done{};
    log->open.push_back(self->make_response_promise<callback_done>());
    return log->open.back();
  };
  return {
    [=](const before_run& x) {
      return hear(x.run.id, "before_run " + std::to_string(x.run.attempt));
    },
    [=](const after_report& x) -> caf::result<callback_done> {
      if (log->orders.empty())
        return hear(x.run_id, "report " + std::to_string(x.index) + " of "
                                + std::to_string(x.values.size()));
      return callback_done{.orders = std::exchange(log->orders, {})};
    },
    [=](const after_exception& x) { return hear(x.run_id, "exception"); },
    [=](const after_run& x) {
      return hear(x.run_id,
                  "after_run " + std::string{to_string(x.outcome.status)});
    },
    [=](const state_changed& x) {
      return hear(x.run_id, "state " + std::string{to_string(x.to)});
    },
    [=](const group_started& x) {
      return hear(x.run_id, "group_started " + std::to_string(x.attempt));
    },
    [=](const group_ended& x) {
      return hear(x.run_id, "group_ended " + std::to_string(x.attempt));
    },
  };
}

} // namespace

class driver_control_test : public driver_test {
protected:
  /// The callback orders *what* in its *hook*.
  void order(std::string hook, std::function<void(const run_control&)> what) {
    acting->in = std::move(hook);
    acting->order = std::move(what);
    second = acting;
  }

  void follow() {
    follower = system.spawn(logging_follower, log);
    auto answer =
      system.ask<run_status>(run_control_actor{driver}, follow_run{}, follower);
    ASSERT_TRUE(answer->value) << answer->failure.message;
    EXPECT_EQ(answer->value->state, status().state);
  }

  std::shared_ptr<ordering_callback> acting =
    std::make_shared<ordering_callback>();
  std::shared_ptr<follower_log> log = std::make_shared<follower_log>();
  run_observer_actor follower;
};

TEST_F(driver_control_test, a_callback_ends_the_run_as_finished) {
  order("after_report", [](auto& run) { run.finish("good enough"); });
  run();
  EXPECT_FALSE(report(0)->value->stop);
  auto last = report(1);
  ASSERT_TRUE(last->value && last->value->stop);
  EXPECT_EQ(last->value->stop->kind, stop_info::kind_type::finished);
  EXPECT_EQ(last->value->stop->reason, "good enough");
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_EQ(outcome().stop_reason, "good enough");
}

TEST_F(driver_control_test, a_callback_preempts_the_run) {
  config.stop_grace = ms{1000};
  order("group_start", [](auto& run) { run.preempt("the price is high"); });
  run();
  auto last = report(0);
  ASSERT_TRUE(last->value && last->value->stop);
  EXPECT_EQ(last->value->stop->kind, stop_info::kind_type::preempted);
  EXPECT_EQ(last->value->stop->reason, "the price is high");
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::preempted);
}

TEST_F(driver_control_test, a_callback_stops_the_run) {
  order("after_report", [](auto& run) { run.abort("the loss is NaN"); });
  run();
  report(0);
  ranks.obey(0);
  ranks.obey(1);
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  EXPECT_THAT(outcome().error->message, HasSubstr("the loss is NaN"));
}

TEST_F(driver_control_test, a_stop_before_the_first_rank_starts_none) {
  struct stopper : recorded_callback {
    void before_run(const run_context& run) override {
      run.control.finish("there is nothing to do");
    }
  };
  second = std::make_shared<stopper>();
  start();
  EXPECT_TRUE(ranks.launcher->launched.empty());
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_EQ(outcome().stop_reason, "there is nothing to do");
}

TEST_F(driver_control_test, an_order_after_the_end_changes_nothing) {
  run();
  finish();
  control.abort("too late");
  system.settle();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
}

TEST_F(driver_control_test, callbacks_see_states_and_groups_in_order) {
  config.failure.max_failures = 1;
  second = acting;
  run();
  kill();
  ranks.attempt = 1;
  ranks.rise_all(2);
  finish();
  EXPECT_THAT(
    acting->calls,
    ElementsAre("before_run 0", "state initializing to scheduling",
                "state scheduling to running", "group_start 0 of 2",
                HasSubstr("after_exception 0"), "group_end 0 rank failed",
                "state running to restarting", "state restarting to scheduling",
                "state scheduling to running", "group_start 1 of 2",
                "group_end 1 none", "state running to shutting_down",
                "state shutting_down to finished", "after_run finished"));
}

TEST_F(driver_control_test, a_callback_makes_its_queue_longer) {
  config.callback_queue = 1;
  run();
  system.hold(callbacks);
  report(0);
  auto held_back = report(1);
  EXPECT_TRUE(held_back->pending());
  control.resize_callback_queue(2);
  system.settle();
  EXPECT_TRUE(held_back->value);
  system.release();
}

TEST_F(driver_control_test, an_actor_follows_a_run_from_where_it_is) {
  run();
  report(0);
  follow();
  report(1);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_THAT(log->heard, ElementsAre("before_run 0", "report 1 of 2",
                                      "group_ended 0", "state shutting_down",
                                      "state finished", "after_run finished"));
}

TEST_F(driver_control_test, all_that_one_hears_names_the_run) {
  config.failure.max_failures = 1;
  run();
  follow();
  report(0);
  kill();
  ranks.attempt = 1;
  ranks.rise_all(2);
  report(1);
  log->keeps_quiet = true; // The run is not over without its answer.
  finish();
  EXPECT_THAT(log->heard,
              testing::IsSupersetOf(
                {"before_run 0", "report 0 of 2", "exception", "group_ended 0",
                 "group_started 1", "state finished", "after_run finished"}));
  EXPECT_THAT(log->runs, ElementsAre(store->description().id));
  log = std::make_shared<follower_log>();
  follow();
  EXPECT_THAT(log->heard, ElementsAre("before_run 1", "after_run finished"));
  EXPECT_THAT(log->runs, ElementsAre(store->description().id));
  system.pass(driver_state::followers_limit);
}

TEST_F(driver_control_test, one_that_follows_orders_with_its_answer) {
  run();
  follow();
  log->orders = {{finish_run{"seen enough"}}};
  report(0);
  EXPECT_EQ(report(1)->value->stop->reason, "seen enough");
  finish();
  EXPECT_EQ(outcome().stop_reason, "seen enough");
}

TEST_F(driver_control_test, each_of_two_actors_may_order_for_the_same_event) {
  auto other = std::make_shared<follower_log>();
  log->orders = {{finish_run{"seen enough"}}};
  other->orders = {{resize_callback_queue{5}}};
  for (auto& x : {log, other})
    actors.push_back(
      {"actor",
       caf::actor_cast<user_callback_actor>(system.spawn(logging_follower, x)),
       true});
  run();
  report(0);
  auto last = report(1);
  ASSERT_TRUE(last->value && last->value->stop);
  EXPECT_EQ(last->value->stop->reason, "seen enough");
  finish();
  EXPECT_EQ(outcome().stop_reason, "seen enough");
}

TEST_F(driver_control_test, one_that_comes_after_the_end_hears_of_it) {
  run();
  log->keeps_quiet = true;
  follow();
  finish();
  EXPECT_EQ(log->heard.back(), "after_run finished");
  log = std::make_shared<follower_log>();
  follow();
  EXPECT_THAT(log->heard, ElementsAre("before_run 0", "after_run finished"));
  system.pass(driver_state::followers_limit);
  EXPECT_EQ(outcome().status, run_status_kind::finished);
}

TEST_F(driver_control_test, no_report_waits_for_one_that_does_not_answer) {
  run();
  log->keeps_quiet = true;
  follow();
  for (std::uint64_t i = 0; i < 100; ++i)
    EXPECT_TRUE(report(i)->value);
  EXPECT_EQ(log->heard.size(), follower_window::max_unanswered);
  finish();
  EXPECT_EQ(log->heard.back(), "after_run finished");
  EXPECT_FALSE(monitor->is_over());
  system.pass(driver_state::followers_limit);
  EXPECT_EQ(outcome().status, run_status_kind::finished);
}

TEST_F(driver_control_test, one_that_ends_is_forgotten) {
  run();
  follow();
  caf::anon_send_exit(follower, caf::exit_reason::kill);
  system.settle();
  report(0);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_THAT(monitor->take_notes(), testing::IsEmpty());
}

TEST_F(driver_test, agents_learn_whether_the_run_has_finished) {
  for (std::string outcome : {"finished", "preempted", "aborted", "errored"}) {
    SCOPED_TRACE(outcome);
    fs::remove_all(config.storage_path);
    monitor = std::make_shared<run_monitor>();
    run();
    caf::error reason;
    caf::actor_cast<caf::abstract_actor*>(ranks.agent)
      ->attach_functor([&reason](const caf::error& x) { reason = x; });
    if (outcome == "preempted") {
      send_anonymous(driver, preempt_run{"SIGTERM came", -1});
      report(0);
    }
    if (outcome == "aborted")
      stop();
    if (outcome == "errored")
      kill();
    else
      finish();
    EXPECT_EQ(to_string(this->outcome().status), outcome);
    if (outcome == "finished")
      EXPECT_EQ(reason, caf::exit_reason::user_shutdown);
    else
      EXPECT_EQ(text_of(reason), "the run is " + outcome);
    store.reset();
  }
}

} // namespace troupe::internal::test
