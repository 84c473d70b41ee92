// What the driver sends to callbacks, when, and what happens to slow and
// throwing ones.

#include "tests/actors/driver_fixture.hpp"
#include "tests/support/pending_reports.hpp"
#include "tests/support/store_batch.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(driver_test, delivers_everything_to_callbacks_once_and_in_order) {
  config.failure.max_failures = 1;
  run();
  report_checkpoint(0);
  report(1);
  kill();
  ranks.attempt = 1;
  ranks.rise_all(2);
  report(2);
  finish();
  EXPECT_THAT(
    callback->calls,
    ElementsAre("before_run 0", "after_report 0 [x=0] [x=0] c0",
                "after_report 0 [x=1] [x=1]",
                "after_exception 0 [1: killed by signal 11 (SIGSEGV)]",
                "after_report 1 [x=2] [x=2]", "after_run finished"));
}

TEST_F(driver_test, says_why_ranks_are_restarted) {
  config.failure.max_failures = 1;
  run();
  kill();
  EXPECT_THAT(monitor->take_notes(),
              testing::Contains(HasSubstr("killed by signal 11 (SIGSEGV)")));
}

TEST_F(driver_test, reports_a_failure_before_the_run_ends_for_it) {
  run();
  kill();
  EXPECT_THAT(callback->calls,
              ElementsAre("before_run 0", HasSubstr("after_exception"),
                          "after_run errored"));
}

TEST_F(driver_test, a_slow_callback_delays_no_rank_until_the_queue_is_full) {
  config.callback_queue = 3;
  start();
  ranks.rise_all(2);
  system.hold(callbacks);
  EXPECT_TRUE(report(0)->value);
  EXPECT_TRUE(report(1)->value);
  EXPECT_TRUE(report(2)->value);
  auto held_back = report(3);
  EXPECT_TRUE(held_back->pending());
  EXPECT_EQ(status().callback_queue, 3u);
  system.release();
  EXPECT_TRUE(held_back->value);
  EXPECT_EQ(callback->calls.size(), 5u);
  EXPECT_EQ(callback->calls.back(), "after_report 0 [x=3] [x=3]");
}

TEST_F(driver_test, a_slow_callback_can_read_what_retention_evicts) {
  struct reader : recorded_callback {
    void after_report(const run_context&, const std::vector<metrics>&,
                      const std::optional<checkpoint>& x) override {
      calls.push_back(x->name() + (x->verify() ? " is whole" : " is gone"));
    }
  };
  config.checkpoint.num_to_keep = 1;
  second = std::make_shared<reader>();
  run();
  system.hold(callbacks);
  for (std::uint64_t i = 0; i < 3; ++i)
    report_checkpoint(i);
  system.release();
  EXPECT_THAT(second->calls, ElementsAre("before_run 0", "c0 is whole",
                                         "c1 is whole", "c2 is whole"));
  report_checkpoint(3);
  for (auto gone : {"c0", "c1", "c2"})
    EXPECT_FALSE(fs::exists(checkpoint_path(gone))) << gone;
  system.hold(callbacks);
  report_checkpoint(4);
  report_checkpoint(5);
  finish();
  EXPECT_TRUE(fs::exists(checkpoint_path("c4")));
  system.release();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_EQ(second->calls[6], "c5 is whole");
  EXPECT_FALSE(fs::exists(checkpoint_path("c4")));
  EXPECT_TRUE(fs::exists(checkpoint_path("c5")));
}

/// Begins a run whose earlier driver stored reports and called back for none;
/// its callbacks are held.
class driver_behind_another_test : public driver_test {
protected:
  /// `start_run` comes later.
  void spawn_behind(std::uint64_t reports) {
    leave_undelivered(reports);
    spawn();
  }

  void start_behind(std::uint64_t reports) {
    spawn_behind(reports);
    system.hold(callbacks);
    send_anonymous(driver, start_run{});
    system.settle();
  }

private:
  void leave_undelivered(std::uint64_t reports) {
    auto dead = run_store::open(config).value();
    auto attempt = dead->begin_attempt().value().attempt;
    ASSERT_TRUE(callback_cursor::open(*dead));
    for (std::uint64_t i = 0; i < reports; ++i) {
      report_batch batch;
      batch.index = i;
      batch.values = {{{"x", i}}, {{"x", i}}};
      batch.parts.resize(2);
      ASSERT_TRUE(store_batch(*dead, attempt, batch));
    }
  }
};

TEST_F(driver_behind_another_test, delivers_no_more_at_once_than_may_wait) {
  config.callback_queue = 3;
  start_behind(9);
  EXPECT_EQ(status().callback_queue, 3u);
  system.release();
  ranks.attempt = 1;
  ranks.rise_all(2);
  EXPECT_TRUE(report(9)->value);
  EXPECT_EQ(callback->calls.size(), 11u);
  EXPECT_THAT(callback->calls[9], HasSubstr("[x=8]"));
  EXPECT_THAT(callback->calls[10], HasSubstr("[x=9]"));
}

TEST_F(driver_behind_another_test, leaves_the_rest_to_the_next_when_stopped) {
  config.callback_queue = 2;
  start_behind(3);
  stop();
  system.release();
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  EXPECT_EQ(callback->calls.back(), "after_run aborted");
  EXPECT_EQ(pending_reports(*store).size(), 2u);
}

// The store passes a request of `troupe stop` on as soon as there is a driver.
TEST_F(driver_behind_another_test, N4_leaves_none_out_if_it_finishes_unbegun) {
  spawn_behind(3);
  send_anonymous(driver, finish_run{"enough"});
  system.settle();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  ASSERT_EQ(callback->calls.size(), 5u);
  EXPECT_EQ(callback->calls.front(), "before_run 1");
  EXPECT_THAT(callback->calls[1], HasSubstr("[x=0]"));
  EXPECT_THAT(callback->calls[3], HasSubstr("[x=2]"));
  EXPECT_EQ(callback->calls.back(), "after_run finished");
}

TEST_F(driver_test, what_was_held_back_for_callbacks_ends_with_its_attempt) {
  config.callback_queue = 1;
  config.failure.max_failures = 1;
  run();
  system.hold(callbacks);
  report(0);
  report(1);
  kill();
  system.release();
  ranks.attempt = 1;
  auto hello = ranks.rise(0);
  ASSERT_TRUE(hello->value);
  EXPECT_EQ(hello->value->facts.first_report, 1u);
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "0", "ranks_failed",
                                           "attempt_begun"));
}

TEST_F(driver_test, the_result_is_there_only_after_the_last_callback) {
  run();
  report(0);
  system.hold(callbacks);
  finish();
  EXPECT_FALSE(monitor->is_over());
  system.release();
  EXPECT_TRUE(monitor->is_over());
  EXPECT_EQ(callback->calls.back(), "after_run finished");
}

TEST_F(driver_test, a_run_has_ended_only_when_callbacks_know_its_reports) {
  run();
  system.hold(callbacks);
  report(0);
  finish();
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "0"));
  system.release();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_EQ(outcome().metrics, (metrics{{"x", 0}}));
  EXPECT_EQ(callback->calls.back(), "after_run finished");
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "0", "run_ended"));
}

TEST_F(driver_test,
       the_next_driver_replays_reports_whose_callbacks_had_not_finished) {
  {
    auto dead = run_store::open(config).value();
    auto attempt = dead->begin_attempt().value().attempt;
    auto cursor = callback_cursor::open(*dead).value();
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto batch =
        stage_batch(dead->path(), attempt, i, "c" + std::to_string(i),
                    {{{"a", "1"}}, {{"b", "2"}}}, {{"x", i}});
      ASSERT_TRUE(store_batch(*dead, attempt, batch.value()));
    }
    ASSERT_TRUE(cursor.mark_delivered(0));
  }
  run();
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
  report(3);
  finish();
  ASSERT_THAT(callback->calls,
              ElementsAre("before_run 1", HasSubstr("after_report 0 [x=1]"),
                          HasSubstr("after_report 0 [x=2]"),
                          "after_report 1 [x=3] [x=3]", "after_run finished"));
  EXPECT_THAT(callback->calls[2], HasSubstr("c2"));
  EXPECT_THAT(pending_reports(*store), testing::IsEmpty());
}

TEST_F(driver_test, a_callback_that_throws_is_noted_and_the_run_continues) {
  callback->throws_in = "after_report";
  run();
  report(0);
  EXPECT_EQ(status().state, run_state::running);
  report(1);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_THAT(monitor->take_notes(),
              ElementsAre(HasSubstr("the callback had enough"),
                          HasSubstr("after_report")));
  EXPECT_THAT(journal_lines(),
              ElementsAre("attempt_begun", "0", "callback_failed", "1",
                          "callback_failed", "run_ended"));
}

TEST_F(driver_test, a_callback_that_throws_ends_the_run_if_it_is_to) {
  config.callback_errors = callback_errors::abort;
  config.failure.max_failures = -1;
  callback->throws_in = "after_report";
  run();
  report(0);
  EXPECT_EQ(status().state, run_state::shutting_down);
  ranks.obey(0);
  ranks.obey(1);
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::errored);
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::callback_failed);
  EXPECT_THAT(x.error->message, HasSubstr("the callback had enough"));
  EXPECT_EQ(callback->calls.back(), "after_run errored");
}

TEST_F(driver_test, N4_all_callbacks_receive_the_report_that_ends_the_run) {
  config.callback_errors = callback_errors::abort;
  callback->throws_in = "after_report";
  second = std::make_shared<recorded_callback>();
  run();
  report(0);
  ranks.obey(0);
  ranks.obey(1);
  EXPECT_EQ(outcome().status, run_status_kind::errored);
  EXPECT_THAT(second->calls,
              ElementsAre("before_run 0", "after_report 0 [x=0] [x=0]",
                          "after_run errored"));
  EXPECT_THAT(pending_reports(*store), testing::IsEmpty());
}

TEST_F(driver_test, no_rank_starts_before_callbacks_know_of_the_run) {
  spawn();
  system.hold(callbacks);
  send_anonymous(driver, start_run{});
  system.settle();
  EXPECT_EQ(status().state, run_state::initializing);
  EXPECT_TRUE(ranks.launcher->launched.empty());
  system.release();
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
}

TEST_F(driver_test, callbacks_know_a_run_that_ends_before_it_begins) {
  spawn();
  send_anonymous(driver, fail_run{{ec::invalid_config, "no door"}});
  system.settle();
  EXPECT_EQ(outcome().status, run_status_kind::errored);
  EXPECT_THAT(callback->calls,
              ElementsAre("before_run 0", "after_run errored"));
}

TEST_F(driver_test, a_stop_ends_a_run_whose_callbacks_have_yet_to_answer) {
  spawn();
  system.hold(callbacks);
  send_anonymous(driver, start_run{});
  stop();
  system.release();
  EXPECT_TRUE(ranks.launcher->launched.empty());
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
}

TEST_F(driver_test, continues_without_the_actor_that_calls_callbacks) {
  run();
  report(0);
  caf::anon_send_exit(callbacks, caf::exit_reason::kill);
  system.settle();
  report(1);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_THAT(monitor->take_notes(),
              ElementsAre(HasSubstr("the run continues without callbacks")));
  EXPECT_THAT(callback->calls,
              ElementsAre("before_run 0", HasSubstr("after_report 0 [x=0]")));
  // The next driver delivers them.
  EXPECT_EQ(pending_reports(*store).size(), 1u);
}

TEST_F(driver_test, ends_although_callbacks_die_while_they_are_called) {
  run();
  system.hold(callbacks);
  report(0);
  finish();
  EXPECT_FALSE(monitor->is_over());
  caf::anon_send_exit(callbacks, caf::exit_reason::kill);
  system.release();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
}

TEST_F(driver_test,
       a_callback_that_throws_at_the_begin_ends_the_run_if_it_is_to) {
  config.callback_errors = callback_errors::abort;
  callback->throws_in = "before_run";
  start();
  EXPECT_TRUE(ranks.launcher->launched.empty());
  ASSERT_TRUE(outcome().error);
  EXPECT_EQ(outcome().error->code, ec::callback_failed);
}

TEST_F(driver_test, what_throws_in_the_last_callback_changes_no_result) {
  config.callback_errors = callback_errors::abort;
  callback->throws_in = "after_run";
  run();
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_FALSE(outcome().error);
  EXPECT_THAT(monitor->take_notes(), ElementsAre(HasSubstr("had enough")));
}

} // namespace troupe::internal::test
