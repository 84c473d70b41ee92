// The worker group when ranks fail, wait too long or are stopped.

#include <csignal>

#include "tests/actors/worker_group_fixture.hpp"

namespace troupe::test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(worker_group_test, an_exit_without_a_goodbye_is_told_with_its_code) {
  start_all();
  ranks.exit(1, {process_exit::kind::exited, 3, {}});
  ranks.kill(0, SIGKILL);
  auto& failure = failure_of(1);
  EXPECT_EQ(failure.kind, kind::exit_code);
  EXPECT_EQ(failure.code, 3);
  EXPECT_EQ(failure.pid, 101);
  EXPECT_EQ(failure.host, "here");
  EXPECT_TRUE(record->failed[0].started);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, a_signal_ends_the_other_ranks_at_once) {
  start_all();
  auto waits = ranks.report(0, 10);
  ranks.kill(1, SIGSEGV);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0));
  EXPECT_TRUE(ranks.told_to_end(0));
  EXPECT_EQ(waits->failure.code, ec::stopped);
  EXPECT_TRUE(mentions(waits->failure, "rank 1")) << waits->failure.message;
  EXPECT_TRUE(record->failed.empty()); // rank 0 has not ended yet
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  EXPECT_EQ(failure_of(1).code, SIGSEGV);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, the_last_words_of_a_thread_become_its_cause) {
  start_all();
  ranks.exit(0, {process_exit::kind::signaled, SIGABRT, "the helper fell"});
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(0).kind, kind::thread_exception);
  EXPECT_EQ(failure_of(0).what, "the helper fell");
}

TEST_F(worker_group_test, an_exception_waits_for_the_exit_that_caused_it) {
  start_all();
  ranks.end_loop(0, {ec::rank_failed, "connection reset by peer"});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.kill(1, SIGKILL);
  system.pass(ms{20});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0));
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(0).kind, kind::exception);
  EXPECT_EQ(failure_of(0).what, "connection reset by peer");
  EXPECT_EQ(failure_of(1).kind, kind::signal);
}

TEST_F(worker_group_test, an_exception_alone_ends_the_other_ranks_soon_after) {
  start_all();
  ranks.end_loop(0, {ec::rank_failed, "out of range"});
  ranks.exit(0);
  system.pass(ms{19});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
  EXPECT_EQ(failure_of(0).what, "out of range");
}

TEST_F(worker_group_test, blames_the_cause_and_not_whom_it_let_down) {
  start_all();
  activity(0).fail_collective(collective_failure::others);
  ranks.end_loop(0, {ec::rank_failed, "rank 1 has left the group"});
  ranks.exit(0);
  system.pass(ms{1900});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.end_loop(1, {ec::rank_failed, "bad input"});
  ranks.exit(1);
  EXPECT_EQ(failure_of(1).what, "bad input");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, waits_no_longer_than_a_while_for_a_cause) {
  plan.world_size = 3;
  start_all();
  activity(0).fail_collective(collective_failure::others);
  ranks.end_loop(0, {ec::rank_failed, "a connection was closed"});
  system.pass(ms{2000});
  system.pass(ms{20});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1, 2));
  for (int rank : {0, 1, 2})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(failure_of(0).what, "a connection was closed");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, hears_out_a_rank_that_left_and_is_in_its_last_hook) {
  plan.world_size = 3;
  start_all();
  activity(1).left_group.store(1);
  for (int rank : {0, 2}) {
    activity(rank).fail_collective(collective_failure::others);
    activity(rank).left_group.store(1);
  }
  ranks.end_loop(0, {ec::rank_failed, "rank 1 has left the group"});
  ranks.exit(0);
  system.pass(ms{2000});
  system.pass(ms{59000});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.end_loop(1, {ec::rank_failed, "bad input"});
  ranks.exit(1);
  system.pass(ms{20});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(2));
  ranks.kill(2, SIGKILL);
  EXPECT_EQ(failure_of(1).what, "bad input");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, blames_a_rank_that_left_and_never_says_why) {
  start_all();
  activity(0).fail_collective(collective_failure::others);
  activity(1).left_group.store(1);
  ranks.end_loop(0, {ec::rank_failed, "rank 1 has left the group"});
  ranks.exit(0);
  system.pass(ms{2000});
  system.pass(ms{60000});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_THAT(failure_of(1).what, HasSubstr("left the collectives"));
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

// Its process has ended, and its spawner has yet to say how.
TEST_F(worker_group_test, hears_out_a_rank_whose_end_is_not_told_yet) {
  plan.exit_timeout = ms{500};
  start_all();
  ranks.launcher->ended = {1};
  activity(0).fail_collective(collective_failure::others);
  ranks.end_loop(0, {ec::rank_failed, "a connection was closed"});
  ranks.exit(0);
  system.pass(ms{2000});
  system.pass(ms{500});
  system.pass(ms{100});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.exit(1, {process_exit::kind::lost, 0, "did not say how"});
  EXPECT_EQ(failure_of(1).what, "did not say how");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, waits_no_longer_once_those_that_left_ended_well) {
  plan.world_size = 3;
  start_all();
  activity(0).left_group.store(1);
  activity(1).fail_collective(collective_failure::others);
  ranks.end_loop(1, {ec::rank_failed, "rank 0 has left the group"});
  ranks.exit(1);
  system.pass(ms{3000});
  system.pass(ms{20});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.finish(0);
  system.pass(ms{20});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(2));
  ranks.kill(2, SIGKILL);
  EXPECT_EQ(failure_of(1).what, "rank 0 has left the group");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, blames_no_rank_that_left_when_others_had_failed) {
  plan.world_size = 3;
  start_all();
  activity(0).left_group.store(1);
  activity(1).fail_collective(collective_failure::others);
  ranks.end_loop(1, {ec::rank_failed, "rank 0 has left the group"});
  ranks.exit(1);
  system.pass(ms{2000});
  system.pass(ms{59000});
  activity(2).left_group.store(1);
  system.pass(ms{1000});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 2));
  for (int rank : {0, 2})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(failure_of(0).kind, kind::timeout);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, a_late_leaver_takes_no_blame_if_no_other_is_left) {
  plan.world_size = 3;
  start_all();
  activity(0).left_group.store(1);
  activity(1).fail_collective(collective_failure::others);
  ranks.end_loop(1, {ec::rank_failed, "rank 0 has left the group"});
  ranks.exit(1);
  system.pass(ms{2000});
  ranks.report(0, 10); // It waits for others itself.
  system.pass(ms{59000});
  activity(2).left_group.store(1);
  system.pass(ms{1000});
  system.pass(ms{20});
  for (int rank : {0, 2})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(failure_of(1).what, "rank 0 has left the group");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, a_rank_that_left_and_waits_for_others_says_no_more) {
  start_all();
  activity(0).fail_collective(collective_failure::others);
  activity(1).left_group.store(1);
  ranks.report(1, 10);
  ranks.end_loop(0, {ec::rank_failed, "rank 1 has left the group"});
  ranks.exit(0);
  system.pass(ms{2000});
  system.pass(ms{20});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(0).what, "rank 1 has left the group");
}

TEST_F(worker_group_test, a_rank_that_was_let_down_by_a_finished_one_failed) {
  start_all();
  activity(0).fail_collective(collective_failure::others);
  ranks.finish(1);
  ranks.end_loop(0, {ec::rank_failed, "rank 1 has left the group"});
  ranks.exit(0);
  EXPECT_EQ(failure_of(0).what, "rank 1 has left the group");
}

TEST_F(worker_group_test, an_exception_made_of_the_order_to_end_is_no_failure) {
  plan.world_size = 3;
  start_all();
  ranks.report(0, 10);
  ranks.kill(1, SIGSEGV);
  // Rank 0 left its report by the order, rank 2 its all-reduce; both throw what
  // they like, and `stop_loop` comes too late.
  ranks.end_loop(0, {ec::rank_failed, "epoch 3 failed"});
  activity(2).fail_collective(collective_failure::others);
  ranks.end_loop(2, {ec::rank_failed, "epoch 3 failed"});
  for (int rank : {0, 2})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(failure_of(1).code, SIGSEGV);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, a_rank_that_was_never_told_to_stop_has_failed) {
  start_all();
  ranks.end_loop(0, {ec::stopped, "I had enough"}, true);
  ranks.exit(0);
  system.pass(ms{20});
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(0).what, "I had enough");
}

TEST_F(worker_group_test,
       a_rank_that_an_aborted_collective_told_to_stop_has_not_failed) {
  start_all();
  ranks.kill(1, SIGKILL);
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  ranks.end_loop(0, segment->abort_reason());
  ranks.exit(0);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
}

TEST_F(worker_group_test, a_rank_whose_connection_broke_is_lost_after_a_while) {
  start_all();
  caf::anon_send_exit(ranks.trainers[1], caf::exit_reason::kill);
  system.pass(ms{1999});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
  ranks.kill(0, SIGKILL);
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_THAT(failure_of(1).what, HasSubstr("connection broke"));
}

TEST_F(worker_group_test, a_rank_that_has_ended_is_not_called_there) {
  start_all();
  ranks.launcher->ended = {1};
  caf::anon_send_exit(ranks.trainers[1], caf::exit_reason::kill);
  system.pass(std::chrono::seconds{2});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.exit(1, {process_exit::kind::lost, 0, "did not say how"});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0));
  ranks.exit(0, {process_exit::kind::lost, 0, "did not say how"});
  EXPECT_EQ(failure_of(1).what, "did not say how");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

// Its spawner has ended, too, and it waits for a disk.
TEST_F(worker_group_test, a_rank_of_which_no_end_is_heard_is_not_waited_for) {
  start_all();
  ranks.launcher->ended = {1};
  caf::anon_send_exit(ranks.trainers[1], caf::exit_reason::kill);
  pass_seconds(11);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  pass_seconds(1);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
  ranks.kill(0, SIGKILL);
  pass_seconds(10);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_THAT(failure_of(1).what, HasSubstr("connection broke"));
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, a_peers_exception_does_not_take_the_blame_of_a_kill) {
  start_all();
  ranks.launcher->ended = {1};
  ranks.end_loop(0, {ec::rank_failed, "connection closed by peer"});
  system.pass(ms{20});
  ranks.exit(1, {process_exit::kind::lost, 0, "did not say how"});
  ranks.exit(0);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
}

TEST_F(worker_group_test, a_broken_connection_leaves_the_word_to_the_process) {
  start_all();
  caf::anon_send_exit(ranks.trainers[1], caf::exit_reason::kill);
  system.settle();
  ranks.kill(1, SIGILL);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  EXPECT_EQ(failure_of(1).code, SIGILL);
  system.pass(std::chrono::seconds{10});
  EXPECT_EQ(record->failed.size(), 1u);
}

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

TEST_F(worker_group_test, ranks_may_come_up_while_their_driver_stands_still) {
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

TEST_F(worker_group_test, a_driver_that_stood_still_gives_no_rank_a_third_try) {
  plan.start_timeout = ms{700};
  start();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(ranks.launcher->killed.empty());
    real += std::chrono::minutes{2};
    system.pass(ms{700});
  }
  EXPECT_FALSE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, a_rank_may_exit_while_its_driver_stands_still) {
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

TEST_F(worker_group_test, a_killed_rank_may_end_while_its_driver_stands_still) {
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
       a_thread_may_leave_its_loop_while_its_driver_stands_still) {
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

TEST_F(worker_group_test, a_limit_counts_no_time_of_a_driver_that_stood_still) {
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
  EXPECT_FALSE(ranks.told_to_end(0));
}

TEST_F(worker_group_test, a_rank_that_cannot_be_launched_ends_the_start) {
  start();
  ranks.launched(0);
  ranks.launcher->listener(1).failed(1, {ec::spawn, "no more processes"});
  system.settle();
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0));
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::start_failed);
  EXPECT_EQ(failure_of(1).what, "no more processes");
  EXPECT_FALSE(record->failed[0].started);
}

TEST_F(worker_group_test,
       a_loop_that_fails_before_others_are_up_is_no_failed_start) {
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
  ranks.launcher->listener(1).failed(1, {ec::spawn, "not wanted any more"});
  system.settle();
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_EQ(failure_of(1).what, "was not started within 700 ms: its spawner "
                                "did not answer");
}

TEST_F(worker_group_test, a_launch_that_a_stop_takes_back_is_no_failure) {
  start();
  ranks.launched(0);
  stop(0);
  ranks.kill(0, SIGKILL);
  ranks.launcher->listener(1).failed(1, {ec::spawn, "not wanted any more"});
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
  ranks.launcher->listener(0).failed(0, {ec::spawn, "no"});
  system.settle();
  ranks.launcher->killed.clear();
  ranks.launched(1);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
}

TEST_F(worker_group_test, a_report_that_waits_too_long_names_who_is_missing) {
  plan.world_size = 3;
  plan.report_timeout = ms{400};
  start_all();
  ranks.report(1, 10);
  system.pass(ms{399});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  for (int rank = 0; rank < 3; ++rank)
    ranks.kill(rank, SIGKILL);
  for (int rank : {0, 2}) {
    EXPECT_EQ(failure_of(rank).kind, kind::timeout);
    EXPECT_THAT(failure_of(rank).what, HasSubstr("ranks 0, 2 are missing"));
  }
  EXPECT_EQ(record->failed[0].ranks.size(), 2u);
}

TEST_F(worker_group_test, the_limit_counts_from_each_wait_anew) {
  plan.report_timeout = ms{400};
  start_all();
  ranks.report(0, 10);
  system.pass(ms{300});
  ranks.report(1, 10);
  commit();
  ranks.report(0, 11);
  system.pass(ms{399});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
}

TEST_F(worker_group_test, a_barrier_that_waits_too_long_names_who_is_missing) {
  plan.report_timeout = ms{400};
  start_all();
  auto waits = system.ask<barrier_released>(ranks.group, join_barrier{3, 1, 0});
  system.pass(ms{400});
  EXPECT_TRUE(waits->failure);
  ranks.kill(0, SIGKILL);
  ranks.kill(1, SIGKILL);
  EXPECT_THAT(failure_of(0).what, HasSubstr("barrier 0: rank 0 is missing"));
}

TEST_F(worker_group_test, names_a_rank_that_others_wait_for) {
  start_all();
  ranks.launcher->lives[1].busy = true;
  auto waits = ranks.report(0, 10);
  pass_seconds(9);
  EXPECT_TRUE(record->warnings.empty());
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_EQ(record->warnings[0].attempt, 3u);
  EXPECT_TRUE(record->warnings[0].waits);
  EXPECT_EQ(record->warnings[0].text,
            "report 10: rank 1 is missing for 10 s, rank 0 waits; rank 1 is in "
            "its train loop, at work; the stacks of its threads are in "
            "logs/rank_1.stacks");
  EXPECT_THAT(ranks.launcher->asked, ElementsAre(1));
  pass_seconds(30);
  EXPECT_EQ(record->warnings.size(), 2u);
  EXPECT_TRUE(waits->pending());
  ranks.report(1, 10);
  commit();
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 3u);
  EXPECT_FALSE(record->warnings[2].waits);
}

TEST_F(worker_group_test, names_where_a_rank_is_that_others_wait_for) {
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  segment->activity(1).in_data_loader =
    state().self->clock().now().time_since_epoch().count();
  ranks.report(0, 10);
  pass_seconds(10);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("rank 1 is in its data loader for 10 s"));
  auto status = system.ask<group_status>(ranks.group, get_status{});
  EXPECT_EQ(status->value->ranks[0].place, "in report 10");
  EXPECT_EQ(status->value->ranks[1].place, "in its data loader for 10 s");
  segment->activity(1).in_data_loader = 0;
  segment->activity(1).at_device =
    state().self->clock().now().time_since_epoch().count();
  pass_seconds(3);
  status = system.ask<group_status>(ranks.group, get_status{});
  EXPECT_EQ(status->value->ranks[1].place, "waiting for its GPU for 3 s");
}

TEST_F(worker_group_test, names_a_rank_that_is_missing_in_a_collective) {
  plan.world_size = 3;
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  for (int rank : {0, 2}) {
    auto& x = segment->activity(rank);
    x.enter_collective();
    x.in_collective = state().self->clock().now().time_since_epoch().count();
  }
  pass_seconds(9);
  EXPECT_TRUE(record->warnings.empty());
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(
    record->warnings[0].text,
    HasSubstr("collective 1: rank 1 is missing for 10 s, ranks 0, 2 wait"));
  segment->activity(1).enter_collective();
  pass_seconds(1);
  EXPECT_EQ(record->warnings.size(), 2u);
  EXPECT_FALSE(record->warnings[1].waits);
}

TEST_F(worker_group_test, a_report_and_a_collective_end_the_attempt) {
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  auto& x = segment->activity(0);
  x.enter_collective();
  x.called = 1;
  auto waits = ranks.report(1, 10);
  pass_seconds(2);
  EXPECT_TRUE(waits->pending()) << "the loop of rank 0 may come";
  x.awaited = 1;
  pass_seconds(1);
  for (int rank : {0, 1})
    ranks.kill(rank, SIGKILL);
  for (int rank : {0, 1}) {
    EXPECT_EQ(failure_of(rank).kind, kind::misuse);
    EXPECT_EQ(failure_of(rank).what,
              "the ranks meet in different calls: rank 0 in collective 1, rank "
              "1 in report 10");
  }
}

TEST_F(worker_group_test, a_collective_that_failed_is_waited_in_no_longer) {
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  auto& x = segment->activity(0);
  x.called = x.awaited = 1;
  x.fail_collective(collective_failure::own);
  auto waits = ranks.report(1, 10);
  pass_seconds(9);
  EXPECT_TRUE(waits->pending());
  ranks.report(0, 10);
  commit();
  EXPECT_FALSE(waits->pending());
}

// As in an all-reduce over NCCL, before a report.
TEST_F(worker_group_test, names_a_rank_that_the_gpus_of_others_wait_for) {
  plan.world_size = 3;
  plan.gpus = {{0}, {1}, {2}};
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  auto now = [this] {
    return state().self->clock().now().time_since_epoch().count();
  };
  for (int rank : {0, 2})
    segment->activity(rank).at_device = now();
  pass_seconds(9);
  EXPECT_TRUE(record->warnings.empty());
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("work on the GPUs: rank 1 is missing for 10 s, ranks 0,"
                        " 2 wait; rank 1 is in its train loop"));
  segment->activity(2).at_device = 0;
  ranks.report(2, 10);
  pass_seconds(10);
  EXPECT_THAT(record->warnings.back().text,
              HasSubstr("report 10: rank 1 is missing for 10 s, rank 2 waits"));
  segment->activity(1).at_device = now();
  pass_seconds(1);
  auto status = system.ask<group_status>(ranks.group, get_status{});
  EXPECT_EQ(status->value->ranks[1].place, "waiting for its GPU for 1 s");
}

TEST_F(worker_group_test, names_ranks_whose_gpus_all_stand_still) {
  plan.gpus = {{0}, {1}};
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  for (int rank : {0, 1})
    segment->activity(rank).at_device =
      state().self->clock().now().time_since_epoch().count();
  pass_seconds(10);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("work on the GPUs: all ranks are in it for 10 s"));
}

TEST_F(worker_group_test, the_last_rank_waits_for_its_gpu_alone) {
  plan.gpus = {{0}, {1}};
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  ranks.finish(0);
  segment->activity(1).at_device =
    state().self->clock().now().time_since_epoch().count();
  pass_seconds(10);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("the end of the run: rank 1 is missing for 10 s"));
}

TEST_F(worker_group_test, a_timeout_of_the_loops_own_is_blamed_on_no_other) {
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  segment->activity(0).enter_collective();
  segment->activity(0).give_up_collective(); // The loop went on from there.
  segment->activity(0).enter_collective();
  segment->activity(0).leave_collective();
  error locked{ec::timeout, "another process has held the metadata for 60 s"};
  ranks.end_loop(0, locked);
  system.pass(ms{20});
  for (int rank : {0, 1})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
  EXPECT_EQ(failure_of(0).kind, kind::exception);
  EXPECT_EQ(failure_of(0).what, locked.message);
}

TEST_F(worker_group_test, blames_the_rank_that_a_collective_gave_up_on) {
  plan.world_size = 3;
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  for (int rank : {0, 2}) {
    segment->activity(rank).enter_collective();
    segment->activity(rank).give_up_collective();
  }
  error late{ec::timeout, "rank 1 did not come within 400 ms"};
  ranks.end_loop(0, late);
  ranks.end_loop(2, late);
  for (int rank : {0, 1, 2})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_EQ(failure_of(1).what, late.message);
}

TEST_F(worker_group_test, a_timeout_of_a_ranks_own_is_its_own_failure) {
  start_all();
  ranks.end_loop(0, {ec::timeout, "the data set did not answer"});
  system.pass(ms{20});
  ranks.kill(1, SIGKILL);
  ranks.exit(0);
  EXPECT_EQ(failure_of(0).kind, kind::exception);
}

TEST_F(worker_group_test, ends_a_rank_that_shows_no_sign_of_life) {
  plan.hang_timeout = ms{60'000};
  plan.world_size = 3;
  plan.gpus = {{}, {}, {}};
  start_all();
  ranks.launcher->lives[1];
  ranks.launcher->lives[2].busy = true;
  ranks.report(0, 10);
  pass_seconds(59);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  pass_seconds(3);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1, 2));
  for (int rank : {0, 1, 2})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u) << "rank 2 is at work";
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_THAT(failure_of(1).what, HasSubstr("without CPU time or I/O for 60"));
}

TEST_F(worker_group_test, never_ends_a_rank_that_works) {
  plan.hang_timeout = ms{60'000};
  start_all();
  ranks.report(0, 10);
  for (int i = 0; i < 600; ++i) {
    ranks.launcher->lives[1].cpu += ms{10};
    pass_seconds(1);
  }
  EXPECT_TRUE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, ends_a_rank_that_stands_still_as_the_last_one) {
  plan.hang_timeout = ms{60'000};
  start_all();
  ranks.launcher->lives[1];
  pass_seconds(600); // no one waits for it
  ranks.finish(0);
  pass_seconds(59);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  pass_seconds(3);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_THAT(failure_of(1).what,
              HasSubstr("the end of the run: rank 1 is missing"));
}

TEST_F(worker_group_test, the_last_rank_may_work_for_as_long_as_it_takes) {
  plan.hang_timeout = ms{60'000};
  plan.report_timeout = ms{1'000};
  start_all();
  ranks.finish(0);
  for (int i = 0; i < 600; ++i) {
    ranks.launcher->lives[1].cpu += ms{10};
    pass_seconds(1);
  }
  EXPECT_TRUE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, the_last_rank_may_wait_for_a_slow_commit) {
  plan.hang_timeout = ms{60'000};
  start_all();
  ranks.launcher->lives[1];
  system.ask<report_committed>(ranks.group,
                               report{3, {.rank = 0, .index = 10}, false});
  ranks.finish(0);
  ranks.report(1, 10);
  pass_seconds(600);
  EXPECT_TRUE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, ends_a_stopped_rank_that_no_rank_waits_for) {
  plan.hang_timeout = ms{60'000};
  plan.world_size = 1;
  plan.gpus = {{0}};
  start_all();
  ranks.launcher->lives[0].stopped = true;
  pass_seconds(30);
  ranks.launcher->lives[0].stopped = false;
  pass_seconds(600);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.launcher->lives[0].stopped = true;
  pass_seconds(63);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(0).kind, kind::timeout);
  EXPECT_THAT(failure_of(0).what, HasSubstr("stopped by a signal"));
}

TEST_F(worker_group_test, a_rank_with_a_gpu_may_wait_for_it_without_cpu_time) {
  plan.hang_timeout = ms{60'000};
  plan.gpus = {{0}, {1}};
  start_all();
  ranks.report(0, 10);
  ranks.launcher->lives[1];
  pass_seconds(600);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.launcher->lives[1].stopped = true;
  pass_seconds(62);
  EXPECT_FALSE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, a_rank_that_waits_at_the_store_is_not_to_blame) {
  plan.hang_timeout = ms{60'000};
  plan.world_size = 3;
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  segment->activity(1).at_store =
    state().self->clock().now().time_since_epoch().count();
  ranks.launcher->lives[1];
  ranks.launcher->lives[2].busy = true;
  ranks.report(0, 10);
  pass_seconds(600);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  EXPECT_THAT(record->warnings.at(0).text,
              HasSubstr("report 10: rank 2 is missing"));
}

TEST_F(worker_group_test, names_a_straggler_that_others_wait_for_in_each_step) {
  plan.world_size = 3;
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  for (std::uint64_t i = 10; i < 20; ++i) {
    for (int rank : {0, 2})
      segment->activity(rank).waited +=
        rank_activity::clock::duration{ms{900}}.count();
    for (int rank = 0; rank < 3; ++rank)
      system.ask<report_committed>(
        ranks.group, report{3, {.rank = rank, .index = i, .step_s = 1.0}});
    commit();
  }
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text, HasSubstr("rank 1 is slower"));
}

TEST_F(worker_group_test, names_a_straggler_within_ten_steps) {
  plan.world_size = 3;
  start_all();
  for (std::uint64_t i = 10; i < 20; ++i) {
    for (int rank = 0; rank < 3; ++rank)
      system.ask<report_committed>(
        ranks.group,
        report{3, {.rank = rank, .index = i, .step_s = rank == 1 ? 1.0 : 0.1}});
    commit();
  }
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text, HasSubstr("rank 1 is slower"));
  EXPECT_FALSE(record->warnings[0].waits);
}

TEST_F(worker_group_test, does_not_warn_about_a_wait_that_is_over) {
  start_all();
  ranks.report(0, 10);
  pass_seconds(9);
  ranks.report(1, 10);
  commit();
  pass_seconds(60);
  EXPECT_TRUE(record->warnings.empty());
}

TEST_F(worker_group_test,
       a_rank_that_ends_without_a_report_others_sent_is_named) {
  start_all();
  auto waits = ranks.report(0, 10);
  ranks.end_loop(1);
  EXPECT_TRUE(waits->failure);
  ranks.exit(1);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::misuse);
  EXPECT_THAT(failure_of(1).what,
              HasSubstr("rank 1 ended its loop after 0 reports, rank 0 waits "
                        "with report 10"));
}

TEST_F(worker_group_test, a_report_that_a_finished_rank_lacks_is_refused) {
  start_all();
  ranks.finish(1);
  auto waits = ranks.report(0, 10);
  EXPECT_EQ(waits->failure.code, ec::rank_failed);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::misuse) << "rank 0 kept the rule";
}

TEST_F(worker_group_test,
       a_rank_that_ends_while_others_wait_in_a_barrier_is_named) {
  start_all();
  auto waits = system.ask<barrier_released>(ranks.group, join_barrier{3, 0, 0});
  ranks.finish(1);
  EXPECT_TRUE(waits->failure);
  ranks.kill(0, SIGKILL);
  EXPECT_THAT(failure_of(1).what, HasSubstr("barrier 0"));
}

TEST_F(worker_group_test, stops_in_good_order) {
  start_all();
  auto report = ranks.report(0, 10);
  auto get = system.ask<std::string>(ranks.group, store_get{3, "k"});
  auto wait = system.ask<void>(ranks.group, store_wait{3, {"k"}});
  stop();
  for (auto& failure : {report->failure, get->failure, wait->failure})
    EXPECT_EQ(failure, (error{ec::stopped, "the run was asked to stop"}));
  EXPECT_TRUE(ranks.launcher->killed.empty());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(ranks.told_to_end(rank));
    ranks.obey(rank);
  }
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->ended[0].stopped);
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(worker_group_test, nobody_is_let_in_or_waits_after_a_stop) {
  start();
  ranks.rise(0);
  stop();
  EXPECT_EQ(ranks.say_hello(1)->failure.code, ec::stopped);
  EXPECT_EQ(ranks.report(0, 10)->failure.code, ec::stopped);
  EXPECT_EQ(
    system.ask<barrier_released>(ranks.group, join_barrier{3, 0})->failure.code,
    ec::stopped);
  EXPECT_EQ(
    system.ask<std::string>(ranks.group, store_get{3, "k"})->failure.code,
    ec::stopped);
}

TEST_F(worker_group_test, aborts_the_shared_segment_when_it_ends_the_ranks) {
  start_all();
  auto segment = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, 3});
  ASSERT_TRUE(segment);
  stop();
  EXPECT_TRUE(segment->aborted());
  EXPECT_EQ(segment->abort_reason().code, ec::stopped);
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
       a_rank_that_crashes_while_it_is_told_to_stop_has_failed) {
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
  EXPECT_TRUE(ranks.told_to_end(1));
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
  system.ask<barrier_released>(ranks.group, join_barrier{3, 1, 0});
  system.pass(ms{100});
  EXPECT_EQ(record->failed.size(), 1u);
}

TEST_F(worker_group_test, a_lent_thread_is_never_given_up) {
  plan.world_size = 1;
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

TEST_F(worker_group_test, threads_that_obey_have_not_failed) {
  plan.in_process = true;
  start_all();
  ranks.end_loop(0, {ec::rank_failed, "out of range"});
  ranks.exit(0);
  ranks.obey(1);
  EXPECT_EQ(failure_of(0).what, "out of range");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

} // namespace troupe::test
