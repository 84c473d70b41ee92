// The worker group when ranks start late or not at all, end, and are ended.

#include <csignal>

#include "tests/actors/worker_group_fixture.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(worker_group_test,
       a_rank_whose_loop_returned_may_take_its_time_to_exit) {
  start_all();
  ranks.end_loop(0);
  caf::anon_send_exit(ranks.trainers[0], caf::exit_reason::user_shutdown);
  ranks.finish(1);
  system.pass(ms{59'999});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.exit(0);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_FALSE(record->ended[0].stopped);
  EXPECT_TRUE(record->failed.empty());
  EXPECT_TRUE(record->warnings.empty());
}

TEST_F(worker_group_test,
       a_rank_that_does_not_exit_is_killed_and_has_returned) {
  plan.exit_timeout = ms{700};
  start_all();
  ranks.end_loop(0);
  ranks.finish(1);
  system.pass(ms{699});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0));
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_EQ(record->warnings[0].text,
            "rank 0 was still there 700 ms after its loop had ended; its "
            "process was killed");
  ranks.kill(0, SIGKILL);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_FALSE(record->ended[0].stopped);
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(worker_group_test, a_thread_that_does_not_exit_is_given_up_as_returned) {
  plan.in_process = true;
  plan.exit_timeout = ms{700};
  start_all();
  ranks.end_loop(0);
  ranks.finish(1);
  system.pass(ms{700});
  EXPECT_EQ(record->warnings.size(), 1u);
  EXPECT_EQ(record->ended.size(), 1u);
}

TEST_F(worker_group_test, ranks_that_do_not_come_up_in_time_are_named) {
  plan.start_timeout = ms{700};
  start();
  ranks.rise(0);
  system.pass(ms{699});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  ranks.kill(0, SIGKILL);
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_THAT(failure_of(1).what, HasSubstr("700 ms"));
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
  EXPECT_FALSE(record->failed[0].started);
}

TEST_F(worker_group_test, ranks_may_start_while_their_driver_is_suspended) {
  plan.start_timeout = ms{700};
  start();
  ranks.rise(0);
  real += std::chrono::minutes{2};
  system.pass(ms{700});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.rise(1); // What had waited for the driver.
  system.pass(ms{10'000});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  EXPECT_EQ(record->started.size(), 1u);
}

TEST_F(worker_group_test,
       a_driver_that_was_suspended_gives_no_rank_a_third_try) {
  plan.start_timeout = ms{700};
  start();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(ranks.launcher->killed.empty());
    real += std::chrono::minutes{2};
    system.pass(ms{700});
  }
  EXPECT_FALSE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, a_rank_may_exit_while_its_driver_is_suspended) {
  plan.exit_timeout = ms{700};
  start_all();
  ranks.end_loop(0);
  real += std::chrono::minutes{2};
  system.pass(ms{700});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.exit(0); // What had waited for the driver.
  ranks.finish(1);
  EXPECT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->warnings.empty());
}

TEST_F(worker_group_test, a_killed_rank_may_end_while_its_driver_is_suspended) {
  start_all();
  ranks.end_loop(0, {ec::rank_failed, "no data"});
  system.pass(ms{20});
  real += std::chrono::minutes{2};
  system.pass(std::chrono::seconds{10});
  EXPECT_TRUE(record->failed.empty());
  ranks.kill(0, SIGKILL);
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(0).what, "no data");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test,
       a_thread_may_leave_its_loop_while_its_driver_is_suspended) {
  plan.in_process = true;
  start_all();
  stop();
  real += std::chrono::minutes{2};
  system.pass(plan.stop_timeout);
  ranks.obey(0); // What had waited for the driver.
  ranks.obey(1);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(worker_group_test,
       a_limit_does_not_count_time_in_which_the_driver_was_suspended) {
  plan.report_timeout = ms{5'000};
  start_all();
  ranks.report(0, 10);
  pass_seconds(2);
  real += std::chrono::minutes{2};
  system.pass(ms{120'000});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  pass_seconds(4);
  EXPECT_FALSE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, a_group_that_is_up_has_no_start_timeout_any_more) {
  plan.start_timeout = ms{700};
  start_all();
  system.pass(ms{10'000});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  EXPECT_FALSE(ranks.asked_to_end(0));
}

TEST_F(worker_group_test, a_rank_that_cannot_be_launched_ends_the_start) {
  start();
  ranks.launched(0);
  ranks.launcher->fail(1, {ec::spawn, "no more processes"});
  system.settle();
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0));
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::start_failed);
  EXPECT_EQ(failure_of(1).what, "no more processes");
  EXPECT_FALSE(record->failed[0].started);
}

TEST_F(worker_group_test,
       a_loop_that_fails_before_others_are_up_is_not_a_failed_start) {
  start();
  ranks.rise(0);
  ranks.end_loop(0, {ec::rank_failed, "early"});
  ranks.exit(0);
  system.pass(ms{20});
  ranks.kill(1, SIGKILL);
  EXPECT_TRUE(record->started.empty());
  EXPECT_EQ(failure_of(0).what, "early");
  EXPECT_TRUE(record->failed[0].started);
}

TEST_F(worker_group_test, a_rank_that_was_never_launched_is_named_and_ended) {
  plan.start_timeout = ms{700};
  start();
  ranks.rise(0);
  system.pass(ms{700});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
  ranks.kill(0, SIGKILL);
  ranks.launcher->fail(1, {ec::spawn, "not wanted any more"});
  system.settle();
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_EQ(failure_of(1).what, "was not started within 700 ms: its spawner "
                                "did not answer");
}

// A killed process on another host may take longer than the limit.
TEST_F(worker_group_test, a_rank_that_is_to_end_exceeds_no_start_limit) {
  plan.start_timeout = ms{700};
  start();
  ranks.launched(0);
  ranks.launcher->fail(1, {ec::spawn, "no more processes"});
  system.settle();
  system.pass(ms{700});
  ranks.kill(0, SIGKILL);
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_THAT(record->failed[0].ranks, testing::SizeIs(1));
  EXPECT_EQ(failure_of(1).kind, kind::start_failed);
}

TEST_F(worker_group_test, a_launch_that_a_stop_cancels_is_not_a_failure) {
  start();
  ranks.launched(0);
  stop(0);
  ranks.kill(0, SIGKILL);
  ranks.launcher->fail(1, {ec::spawn, "not wanted any more"});
  system.settle();
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->ended[0].stopped);
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(worker_group_test, a_process_that_a_kill_does_not_end_is_left_behind) {
  start_all();
  ranks.kill(1, SIGSEGV);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0));
  system.pass(ms{9'999});
  EXPECT_TRUE(record->failed.empty());
  system.pass(ms{1});
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  EXPECT_EQ(failure_of(0).kind, kind::lost);
  EXPECT_THAT(failure_of(0).what, HasSubstr("left behind"));
}

TEST_F(worker_group_test, a_rank_launched_after_the_end_is_killed_at_once) {
  start();
  ranks.launcher->fail(0, {ec::spawn, "no"});
  system.settle();
  ranks.launcher->killed.clear();
  ranks.launched(1);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
}

TEST_F(worker_group_test, stops_in_good_order) {
  start_all();
  auto report = ranks.report(0, 10);
  auto get = system.ask<std::string>(ranks.agent, store_get{3, "k"});
  auto wait = system.ask<void>(ranks.agent, store_wait{3, {"k"}});
  stop();
  for (auto& failure : {report->failure, get->failure, wait->failure})
    EXPECT_EQ(failure, (error{ec::stopped, "the run was asked to stop"}));
  EXPECT_TRUE(ranks.launcher->killed.empty());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(ranks.asked_to_end(rank));
    ranks.obey(rank);
  }
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->ended[0].stopped);
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(worker_group_test, no_one_is_admitted_or_waits_after_a_stop) {
  start();
  ranks.rise(0);
  stop();
  EXPECT_EQ(ranks.say_hello(1)->failure.code, ec::stopped);
  EXPECT_EQ(ranks.report(0, 10)->failure.code, ec::stopped);
  EXPECT_EQ(
    system.ask<barrier_released>(ranks.agent, join_barrier{3, 0})->failure.code,
    ec::stopped);
  EXPECT_EQ(
    system.ask<std::string>(ranks.agent, store_get{3, "k"})->failure.code,
    ec::stopped);
}

TEST_F(worker_group_test, aborts_the_shared_segment_when_it_ends_the_ranks) {
  start_all();
  stop();
  EXPECT_TRUE(segment().aborted());
  EXPECT_EQ(segment().abort_reason().code, ec::stopped);
}

TEST_F(worker_group_test, kills_the_ranks_that_do_not_leave_within_the_grace) {
  start_all();
  stop(300);
  ranks.obey(0);
  system.pass(ms{299});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->ended[0].stopped);
}

TEST_F(worker_group_test,
       a_rank_that_crashes_while_it_is_asked_to_stop_has_failed) {
  start_all();
  stop();
  ranks.obey(0);
  ranks.kill(1, SIGSEGV);
  EXPECT_EQ(failure_of(1).code, SIGSEGV);
}

TEST_F(worker_group_test, a_stop_before_ranks_are_up_turns_them_away) {
  start();
  ranks.launched(0);
  stop();
  EXPECT_EQ(ranks.say_hello(0)->failure.code, ec::stopped);
  ranks.exit(0, {process_exit::kind::exited, 1, {}});
  ranks.kill(1, SIGKILL);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->ended[0].stopped);
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(worker_group_test,
       a_stop_of_an_attempt_that_is_over_is_answered_at_once) {
  start_all();
  ranks.finish(0);
  ranks.finish(1);
  stop();
  ASSERT_EQ(record->ended.size(), 2u);
  EXPECT_TRUE(record->ended[1].stopped);
}

TEST_F(worker_group_test, a_thread_that_does_not_leave_is_given_up) {
  plan.in_process = true;
  plan.stop_timeout = ms{300};
  start_all();
  ranks.end_loop(0, {ec::rank_failed, "out of range"});
  ranks.exit(0);
  EXPECT_TRUE(ranks.asked_to_end(1));
  system.pass(ms{299});
  EXPECT_TRUE(record->failed.empty());
  system.pass(ms{1});
  EXPECT_EQ(failure_of(0).kind, kind::exception);
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_THAT(failure_of(1).what, HasSubstr("thread is left behind"));
}

TEST_F(worker_group_test, threads_may_be_given_up_without_any_grace) {
  plan.in_process = true;
  plan.stop_timeout = ms{0};
  plan.report_timeout = ms{100};
  start_all();
  ranks.report(0, 10);
  system.ask<barrier_released>(ranks.agent, join_barrier{3, 1, 0});
  system.pass(ms{100});
  EXPECT_EQ(record->failed.size(), 1u);
}

TEST_F(worker_group_test, a_lent_thread_is_never_given_up) {
  plan.world = {1, 1};
  plan.in_process = plan.on_lent_thread = true;
  start_all();
  stop();
  system.pass(plan.stop_timeout);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text, HasSubstr("the run waits for it"));
  ranks.end_loop(0, {ec::stopped, "the run was asked to stop"});
  system.pass(plan.exit_timeout);
  EXPECT_TRUE(record->ended.empty());
  ranks.exit(0);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->ended[0].stopped);
  EXPECT_TRUE(record->failed.empty());
  EXPECT_EQ(record->warnings.size(), 1u);
}

TEST_F(worker_group_test, threads_that_stop_when_asked_to_have_not_failed) {
  plan.in_process = true;
  start_all();
  ranks.end_loop(0, {ec::rank_failed, "out of range"});
  ranks.exit(0);
  ranks.obey(1);
  EXPECT_EQ(failure_of(0).what, "out of range");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

} // namespace troupe::internal::test
