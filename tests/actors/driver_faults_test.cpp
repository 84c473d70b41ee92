// The driver over a real run folder: what storage does to it, and the actors
// that it depends on when they are gone.

#include "tests/actors/driver_fixture.hpp"

namespace troupe::internal::test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(driver_test, a_checkpoint_that_cannot_be_committed_ends_the_run) {
  config.failure.max_failures = -1;
  run();
  auto answer =
    ranks.report(0, 0, {}, checkpoint_part{"c0", {{"nowhere", 1, 1}}});
  ranks.report(1, 0);
  EXPECT_TRUE(answer->failure);
  EXPECT_TRUE(ranks.asked_to_end(1));
  ranks.obey(0);
  ranks.obey(1);
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::errored);
  ASSERT_TRUE(x.error);
  EXPECT_THAT(x.error->message, HasSubstr(".staging-0-0"));
  EXPECT_TRUE(x.error->ranks.empty());
  EXPECT_FALSE(x.checkpoint);
  // No rank failed: they left because they were asked to.
  EXPECT_THAT(callback->calls,
              ElementsAre("before_run 0", "after_run errored"));
}

TEST_F(driver_test, a_journal_that_takes_no_line_ends_the_run) {
  run();
  ASSERT_TRUE(arm_failpoint("journal.append=enospc"));
  auto answer = report(0);
  EXPECT_EQ(answer->failure.code, ec::stopped);
  ranks.obey(0);
  ranks.obey(1);
  ASSERT_TRUE(outcome().error);
  EXPECT_EQ(outcome().error->code, ec::storage);
  EXPECT_EQ(outcome().status, run_status_kind::errored);
}

// N4: a report that comes while ranks learn of the error leaves no gap.
TEST_F(driver_test, stores_no_report_after_one_that_could_not_be_stored) {
  for (auto fails : {"journal.append=enospc", "commit"}) {
    SCOPED_TRACE(fails);
    fs::remove_all(config.storage_path);
    monitor = std::make_shared<run_monitor>();
    run();
    report(0);
    if (*fails == 'j') {
      ASSERT_TRUE(arm_failpoint(fails));
      report(1);
      ASSERT_TRUE(arm_failpoint(""));
    } else {
      ranks.report(0, 1, {}, checkpoint_part{"c1", {{"nowhere", 1, 1}}});
      ranks.report(1, 1);
    }
    auto next = system.ask<report_committed>(
      driver, commit_batch{ranks.attempt,
                           {.index = 2, .values = {{}, {}}, .parts = {}}});
    EXPECT_EQ(next->failure.code, ec::storage) << next->failure.message;
    ranks.obey(0);
    ranks.obey(1);
    EXPECT_EQ(outcome().status, run_status_kind::errored);
    EXPECT_THAT(journal_lines(),
                ElementsAre("attempt_begun", "0", "run_ended"));
    store.reset();
  }
}

TEST_F(driver_test, says_that_an_end_could_not_be_stored) {
  run();
  stop();
  ranks.obey(0);
  ASSERT_TRUE(arm_failpoint("journal.append:1+=enospc"));
  ranks.obey(1);
  ASSERT_TRUE(arm_failpoint(""));
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::aborted);
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::stopped);
  auto problem = HasSubstr("could not be stored: ");
  EXPECT_THAT(x.error->message, problem);
  EXPECT_THAT(x.error->message, HasSubstr("journal.jsonl"));
  EXPECT_THAT(monitor->take_notes(), Contains(problem));
}

// The worker group says why it ends ranks; a run whose group does not must not
// wait for ever.
TEST_F(driver_test, restarts_ranks_that_were_ended_without_a_cause) {
  run();
  send_anonymous(driver, attempt_ended{ranks.attempt, true});
  system.settle();
  EXPECT_EQ(ranks.launcher->launched.size(), 4u);
  EXPECT_THAT(journal_lines(),
              ElementsAre("attempt_begun", "attempt_left", "attempt_begun"));
  EXPECT_EQ(status().state, run_state::scheduling);
}

TEST_F(driver_test, a_run_that_is_lost_before_it_starts_says_why) {
  spawn();
  send_anonymous(driver, fail_run{{ec::invalid_config, "no door"}});
  system.settle();
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::errored);
  EXPECT_EQ(x.error->message, "no door");
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "run_ended"));
}

TEST_F(driver_test, a_journal_that_is_not_durable_ends_the_run) {
  run();
  report(0);
  send_anonymous(driver, fail_run{{ec::storage, "the disk is gone"}});
  system.settle();
  EXPECT_EQ(status().state, run_state::shutting_down);
  ranks.obey(0);
  ranks.obey(1);
  ASSERT_TRUE(outcome().error);
  EXPECT_EQ(outcome().status, run_status_kind::errored);
  EXPECT_EQ(outcome().error->code, ec::storage);
  EXPECT_EQ(outcome().error->message, "the disk is gone");
}

TEST_F(driver_test, an_attempt_that_cannot_be_written_is_not_started) {
  config.failure.max_failures = 1;
  run();
  fs::remove_all(store->path());
  kill();
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::errored);
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::storage);
}

TEST_F(driver_test, keeps_a_batch_whose_commit_outlives_its_attempt) {
  config.failure.max_failures = 1;
  run();
  system.hold(storage);
  report_checkpoint(0);
  kill();
  EXPECT_EQ(ranks.launcher->launched.size(), 2u); // not before the commit
  system.release();
  EXPECT_EQ(ranks.launcher->launched.size(), 4u);
  ranks.attempt = 1;
  auto hello = ranks.rise(0);
  ASSERT_TRUE(hello->value);
  EXPECT_EQ(hello->value->facts.first_report, 1u);
  ASSERT_TRUE(hello->value->resume);
  EXPECT_EQ(hello->value->resume->path(), checkpoint_path("c0"));
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "ranks_failed",
                                           "0 c0", "attempt_begun"));
  EXPECT_THAT(callback->calls,
              ElementsAre("before_run 0", HasSubstr("after_exception 0"),
                          "after_report 0 [x=0] [x=0] c0"));
}

TEST_F(driver_test, a_run_ends_after_the_commit_that_is_under_way) {
  run();
  system.hold(storage);
  report_checkpoint(0);
  stop();
  ranks.obey(0);
  ranks.obey(1);
  EXPECT_FALSE(monitor->is_over());
  system.release();
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::aborted);
  ASSERT_TRUE(x.checkpoint);
  EXPECT_EQ(x.checkpoint->name(), "c0");
  EXPECT_EQ(x.metrics, (metrics{{"x", 0}}));
  EXPECT_THAT(journal_lines(),
              ElementsAre("attempt_begun", "0 c0", "run_ended"));
}

TEST_F(driver_test, a_commit_that_fails_while_the_run_is_stopped_is_its_error) {
  run();
  system.hold(storage);
  ranks.report(0, 0, {}, checkpoint_part{"c0", {{"nowhere", 1, 1}}});
  ranks.report(1, 0);
  stop();
  ranks.obey(0);
  ranks.obey(1);
  EXPECT_FALSE(monitor->is_over());
  system.release();
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::errored);
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::storage);
}

TEST_F(driver_test, ends_the_run_if_its_worker_group_is_gone) {
  config.failure.max_failures = -1;
  run();
  caf::anon_send_exit(ranks.group, caf::exit_reason::kill);
  system.settle();
  ASSERT_TRUE(outcome().error);
  EXPECT_THAT(outcome().error->message, HasSubstr("the worker group is gone"));
  EXPECT_TRUE(ranks.asked_to_end(0)); // by its trainer
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
}

TEST_F(driver_test, ends_the_run_if_its_host_agent_is_gone) {
  config.failure.max_failures = -1;
  config.failure.controller_failure_limit = -1;
  run();
  caf::anon_send_exit(ranks.agent, caf::exit_reason::kill);
  system.settle();
  ASSERT_TRUE(outcome().error);
  EXPECT_THAT(outcome().error->message,
              HasSubstr("the worker group is gone: the host agent is gone: "));
  EXPECT_TRUE(ranks.asked_to_end(0)); // by its trainer
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
}

TEST_F(driver_test, a_driver_that_dies_leaves_an_error_and_no_rank) {
  run();
  report_checkpoint(0);
  store->on_append([] { throw std::runtime_error{"no more memory"}; });
  auto answer = report(1);
  EXPECT_FALSE(monitor->is_over()); // before its ranks have ended
  EXPECT_TRUE(ranks.asked_to_end(0));
  EXPECT_TRUE(ranks.asked_to_end(1));
  ranks.obey(0);
  ranks.obey(1);
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::errored);
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->message, "the driver of the run died: no more memory; "
                              "the next run of this name resumes");
  ASSERT_TRUE(x.checkpoint);
  EXPECT_EQ(x.checkpoint->name(), "c0");
  EXPECT_TRUE(answer->failure);
}

TEST_F(driver_test, a_driver_that_dies_once_the_end_is_stored_changes_nothing) {
  run();
  report_checkpoint(0);
  system.hold(callbacks); // for `after_run`
  finish();
  caf::anon_send_exit(driver, caf::exit_reason::kill);
  system.settle();
  system.release();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_FALSE(outcome().error);
}

TEST_F(driver_test, ranks_that_ignore_the_death_of_the_driver_are_killed) {
  config.stop_timeout = ms{400};
  run();
  caf::anon_send_exit(driver, caf::exit_reason::kill);
  system.pass(ms{400});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
  ranks.kill(0, SIGKILL);
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(outcome().status, run_status_kind::errored);
}

TEST_F(driver_test, a_driver_that_dies_before_its_ranks_start_leaves_an_error) {
  spawn();
  caf::anon_send_exit(driver, caf::exit_reason::kill);
  system.settle();
  EXPECT_EQ(outcome().status, run_status_kind::errored);
}

TEST_F(driver_test, ends_the_run_if_its_committer_is_gone) {
  config.failure.max_failures = -1;
  run();
  caf::anon_send_exit(storage, caf::exit_reason::kill);
  system.settle();
  ranks.obey(0);
  ranks.obey(1);
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::errored);
  ASSERT_TRUE(x.error);
  EXPECT_THAT(x.error->message, HasSubstr("the committer is gone"));
}

} // namespace troupe::internal::test
