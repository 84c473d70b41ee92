// The driver over a real run folder: states, restarts and stops.

#include "tests/actors/driver_fixture.hpp"

namespace troupe::internal::test {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(driver_test, goes_through_the_states_of_a_run_that_finishes) {
  spawn();
  EXPECT_EQ(status().state, run_state::initializing);
  EXPECT_TRUE(ranks.launcher->launched.empty());
  send_anonymous(driver, start_run{});
  system.settle();
  EXPECT_EQ(status().state, run_state::scheduling);
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
  ranks.rise_all(2);
  EXPECT_EQ(status().state, run_state::running);
  report(0);
  finish();
  auto x = outcome();
  EXPECT_EQ(status().state, run_state::finished);
  EXPECT_EQ(x.status, run_status_kind::finished);
  EXPECT_FALSE(x.error);
  EXPECT_EQ(x.metrics, (metrics{{"x", 0}}));
  EXPECT_EQ(x.attempts, 1u);
}

TEST_F(driver_test, answers_how_the_run_is) {
  run();
  report(0);
  report(1);
  auto answer = system.ask<run_status>(driver, get_status{});
  ASSERT_TRUE(answer->value);
  EXPECT_EQ(answer->value->state, run_state::running);
  EXPECT_EQ(answer->value->attempt, 0u);
  EXPECT_EQ(answer->value->world_size, 2);
  EXPECT_EQ(answer->value->reports, 2u);
  EXPECT_EQ(answer->value->last_report, 1u);
  EXPECT_EQ(answer->value->last_metrics, (metrics{{"x", 1}}));
  EXPECT_EQ(answer->value->callback_queue, 0u);
}

TEST_F(driver_test, a_report_is_in_the_journal_before_it_is_answered) {
  run();
  auto answer = report(0);
  ASSERT_TRUE(answer->value);
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "0"));
}

TEST_F(driver_test, a_checkpoint_is_committed_before_its_report_is_answered) {
  run();
  system.hold(storage);
  auto answer = report_checkpoint(0);
  EXPECT_TRUE(answer->pending());
  system.release();
  ASSERT_TRUE(answer->value) << answer->failure.message;
  EXPECT_EQ(answer->value->checkpoint, checkpoint_path("c0"));
  EXPECT_EQ(bytes_of(fs::path{checkpoint_path("c0")} / "model"), "weights");
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "0 c0"));
}

TEST_F(driver_test, metrics_wait_behind_the_commit_of_a_checkpoint) {
  run();
  system.hold(storage);
  auto first = report_checkpoint(0);
  auto second = report(1);
  EXPECT_TRUE(second->pending());
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun"));
  system.release();
  EXPECT_TRUE(first->value);
  EXPECT_TRUE(second->value);
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "0 c0", "1"));
}

TEST_F(driver_test, lists_the_checkpoints_that_ranks_reported) {
  run();
  report_checkpoint(0);
  report_checkpoint(1);
  auto answer = system.ask<checkpoint_list>(ranks.agent, get_checkpoints{});
  ASSERT_TRUE(answer->value);
  ASSERT_EQ(answer->value->entries.size(), 2u);
  EXPECT_EQ(answer->value->entries[1].data.path(), checkpoint_path("c1"));
  EXPECT_EQ(answer->value->entries[1].values, (metrics{{"x", 1}}));
  EXPECT_EQ(answer->value->entries[1].index, 1u);
}

TEST_F(driver_test, starts_again_from_the_last_checkpoint_as_a_new_attempt) {
  config.failure.max_failures = 1;
  run();
  report_checkpoint(0);
  report(1);
  kill();
  EXPECT_EQ(status().state, run_state::scheduling);
  EXPECT_EQ(status().attempt, 1u);
  ASSERT_EQ(ranks.launcher->launched.size(), 4u);
  EXPECT_EQ(ranks.launcher->launched[3].attempt, 1u);
  ranks.attempt = 1;
  auto hello = ranks.rise(0);
  ASSERT_TRUE(hello->value);
  EXPECT_EQ(hello->value->facts.attempt, 1u);
  EXPECT_EQ(hello->value->facts.first_report, 2u);
  ASSERT_TRUE(hello->value->resume);
  EXPECT_EQ(hello->value->resume->path(), checkpoint_path("c0"));
  ranks.rise(1);
  EXPECT_EQ(status().state, run_state::running);
  report(2);
  finish();
  EXPECT_FALSE(outcome().error);
  EXPECT_EQ(outcome().attempts, 2u);
  EXPECT_THAT(journal_lines(),
              ElementsAre("attempt_begun", "0 c0", "1", "ranks_failed",
                          "attempt_begun", "2", "run_ended"));
}

TEST_F(driver_test, ends_the_run_once_it_failed_more_often_than_it_may) {
  config.failure.max_failures = 1;
  run();
  kill();
  ranks.attempt = 1;
  ranks.rise_all(2);
  kill();
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::errored);
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::rank_failed);
  EXPECT_THAT(x.error->message, HasSubstr("Rank 1: killed by signal 11"));
  ASSERT_TRUE(x.error->ranks.contains(1));
  EXPECT_EQ(x.error->ranks.at(1).pid, 101);
  EXPECT_EQ(ranks.launcher->launched.size(), 4u);
}

TEST_F(driver_test, waits_a_little_longer_after_every_failed_start) {
  config.failure.controller_failure_limit = 2;
  start();
  auto fail = [this] {
    ranks.launcher->fail(0, {ec::spawn, "no more processes"});
    ranks.kill(1, SIGKILL);
  };
  fail();
  EXPECT_EQ(status().state, run_state::rescheduling);
  EXPECT_THAT(monitor->take_notes(), Contains(HasSubstr("no more processes")));
  system.pass(ms{99});
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
  system.pass(ms{1});
  EXPECT_EQ(ranks.launcher->launched.size(), 4u);
  fail();
  system.pass(ms{199});
  EXPECT_EQ(ranks.launcher->launched.size(), 4u);
  system.pass(ms{1});
  EXPECT_EQ(ranks.launcher->launched.size(), 6u);
  fail();
  ASSERT_TRUE(outcome().error);
  EXPECT_EQ(outcome().error->code, ec::spawn);
  EXPECT_THAT(outcome().error->message, HasSubstr("no more processes"));
}

TEST_F(driver_test, N6_reuses_no_number_after_ranks_began_their_loops) {
  start();
  ranks.rise(0); // Its loop begins.
  ranks.launcher->fail(1, {ec::spawn, "no more processes"});
  system.settle();
  ranks.kill(0, SIGKILL);
  system.pass(ms{100});
  ranks.attempt = 1;
  ranks.rise_all(2);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_EQ(outcome().attempts, 2u);
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "ranks_failed",
                                           "attempt_begun", "run_ended"));
}

TEST_F(driver_test, can_be_stopped_before_it_starts) {
  spawn();
  stop();
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  EXPECT_TRUE(ranks.launcher->launched.empty());
}

TEST_F(driver_test, can_be_stopped_while_ranks_come_up) {
  start();
  ranks.rise(0);
  stop();
  EXPECT_EQ(status().state, run_state::shutting_down);
  ranks.obey(0);
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  EXPECT_THAT(callback->calls,
              ElementsAre("before_run 0", "after_run aborted"));
}

TEST_F(driver_test, can_be_stopped_while_ranks_run) {
  run();
  report_checkpoint(0);
  stop();
  EXPECT_TRUE(ranks.asked_to_end(0));
  ranks.obey(0);
  ranks.obey(1);
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::aborted);
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::stopped);
  EXPECT_THAT(x.error->message, AllOf(HasSubstr("the test is over; "),
                                      HasSubstr("\" resumes it")));
  EXPECT_EQ(x.metrics, (metrics{{"x", 0}}));
  ASSERT_TRUE(x.checkpoint);
  EXPECT_EQ(x.checkpoint->name(), "c0");
  EXPECT_THAT(journal_lines(),
              ElementsAre("attempt_begun", "0 c0", "run_ended"));
}

TEST_F(driver_test, kills_ranks_that_do_not_leave_within_the_stop_timeout) {
  config.stop_timeout = ms{400};
  run();
  stop();
  system.pass(ms{399});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
  ranks.kill(0, SIGKILL);
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
}

TEST_F(driver_test, can_be_stopped_while_it_waits_for_another_start) {
  start();
  ranks.launcher->fail(0, {ec::spawn, "no"});
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(status().state, run_state::rescheduling);
  stop();
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  system.pass(ms{1000});
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
}

TEST_F(driver_test, can_be_stopped_while_a_new_attempt_is_being_written) {
  config.failure.max_failures = 1;
  run();
  system.hold(storage);
  kill();
  stop();
  system.release();
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
}

TEST_F(driver_test, is_not_impressed_by_a_second_stop) {
  run();
  stop();
  stop();
  ranks.obey(0);
  ranks.obey(1);
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  stop();
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
}

TEST_F(driver_test, says_once_how_long_ranks_have_after_a_stop) {
  run();
  stop();
  stop();
  EXPECT_THAT(
    monitor->take_notes(),
    ElementsAre("the test is over; ranks have 5 s to leave their loops"));
  ranks.obey(0);
  ranks.obey(1);
}

TEST_F(driver_test, a_crash_during_a_stop_leaves_the_run_aborted) {
  run();
  stop();
  ranks.obey(0);
  ranks.kill(1, SIGSEGV);
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
}

TEST_F(driver_test, waits_longer_before_each_restart_without_a_report) {
  config.failure.max_failures = -1;
  run();
  kill();
  EXPECT_EQ(ranks.launcher->launched.size(), 4u); // at once
  ranks.attempt = 1;
  ranks.rise_all(2);
  kill();
  EXPECT_EQ(status().state, run_state::restarting);
  EXPECT_THAT(monitor->take_notes(),
              Contains(HasSubstr("failed 2 times without a report")));
  system.pass(ms{49});
  EXPECT_EQ(ranks.launcher->launched.size(), 4u);
  system.pass(ms{51});
  EXPECT_EQ(ranks.launcher->launched.size(), 6u);
  ranks.attempt = 2;
  ranks.rise_all(2);
  report(0);
  kill();
  EXPECT_EQ(ranks.launcher->launched.size(), 8u); // progress: at once again
}

TEST_F(driver_test, can_be_stopped_while_it_waits_for_a_restart) {
  config.failure.max_failures = -1;
  run();
  kill();
  ranks.attempt = 1;
  ranks.rise_all(2);
  kill();
  stop();
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
  system.pass(ms{1000});
  EXPECT_EQ(ranks.launcher->launched.size(), 4u);
}

TEST_F(driver_test, does_not_wait_for_the_answer_of_a_group_that_is_gone) {
  run();
  stop();
  caf::anon_send_exit(ranks.group, caf::exit_reason::kill);
  system.settle();
  EXPECT_EQ(outcome().status, run_status_kind::errored);
}

TEST_F(driver_test, refuses_batches_of_another_attempt) {
  run();
  auto answer = system.ask<report_committed>(
    driver, commit_batch{7, {.index = 0, .values = {{}, {}}, .parts = {}}});
  EXPECT_EQ(answer->failure.code, ec::stopped);
  EXPECT_EQ(status().reports, 0u);
}

// D8: it was swallowed.
TEST_F(driver_test, notes_once_an_impossible_event_of_a_group) {
  refused = 1;
  run();
  for (std::uint64_t attempt : {7, 7, 0}) {
    send_anonymous(driver, attempt_started{attempt});
    system.settle();
  }
  EXPECT_THAT(monitor->take_notes(),
              ElementsAre(AllOf(HasSubstr("a defect of Troupe"),
                                HasSubstr("attempt 7 is not the current"))));
  report(0);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
}

TEST_F(driver_test, shows_warnings_and_writes_them_down) {
  run();
  ranks.report(0, 0);
  system.pass(ms{30'000});
  EXPECT_THAT(monitor->take_notes(),
              ElementsAre(HasSubstr("rank 1 is missing for 30 s")));
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "warning"));
}

TEST_F(driver_test, shows_how_far_the_epoch_of_this_attempt_is) {
  run();
  epoch_progress progress{1, 2, 3, 4.5};
  send_anonymous(driver, epoch_advanced{0, progress});
  system.settle();
  EXPECT_EQ(status().progress, progress);
  send_anonymous(driver, epoch_advanced{7, std::nullopt});
  system.settle();
  EXPECT_EQ(status().progress, progress);
}

TEST_F(driver_test, resumes_where_an_earlier_driver_stopped) {
  run();
  report_checkpoint(0);
  stop();
  ranks.obey(0);
  ranks.obey(1);
  ASSERT_TRUE(monitor->is_over());
  store.reset();
  monitor = std::make_shared<run_monitor>();
  callback->calls.clear();
  start();
  EXPECT_EQ(ranks.attempt, 1u);
  auto hello = ranks.rise(0);
  ASSERT_TRUE(hello->value);
  EXPECT_EQ(hello->value->facts.first_report, 1u);
  ASSERT_TRUE(hello->value->resume);
  EXPECT_EQ(hello->value->resume->path(), checkpoint_path("c0"));
  EXPECT_EQ(status().reports, 1u);
  EXPECT_THAT(callback->calls, ElementsAre("before_run 1"));
}

TEST_F(driver_test, a_run_of_another_size_says_so) {
  run();
  EXPECT_EQ(status().world_size, 2);
  send_anonymous(driver, attempt_ended{0, false, false, "h1 is lost"});
  system.settle();
  send_anonymous(driver, attempt_started{1, 1});
  system.settle();
  EXPECT_EQ(status().world_size, 1);
  EXPECT_THAT(monitor->take_notes(),
              Contains("attempt 1 has 1 rank instead of 2"));
  EXPECT_THAT(journal_lines(), Contains("world_resized"));
  EXPECT_THAT(bytes_of(store->folder().journal_file()),
              HasSubstr(R"("why":"h1 is lost")"));
  send_anonymous(driver, attempt_ended{1, false, false, "a host has come"});
  system.settle();
  system.pass(ms{100}); // The second time without a report, it waits.
  send_anonymous(driver, attempt_started{2, 2});
  system.settle();
  EXPECT_THAT(bytes_of(store->folder().journal_file()),
              HasSubstr(R"("why":"more hosts are here")"));
}

} // namespace troupe::internal::test
