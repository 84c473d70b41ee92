// Whom the worker group blames when ranks fail.

#include <csignal>

#include "tests/actors/worker_group_fixture.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(worker_group_test, an_exit_without_a_goodbye_is_reported_with_its_code) {
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
  EXPECT_TRUE(ranks.asked_to_end(0));
  EXPECT_EQ(waits->failure.code, ec::stopped);
  EXPECT_TRUE(mentions(waits->failure, "rank 1")) << waits->failure.message;
  EXPECT_TRUE(record->failed.empty()); // rank 0 has not ended yet
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  EXPECT_EQ(failure_of(1).code, SIGSEGV);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test,
       the_termination_message_of_a_thread_becomes_its_cause) {
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
  fail_by_others(0, "rank 1 has left the group");
  system.pass(ms{1900});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.end_loop(1, {ec::rank_failed, "bad input"});
  ranks.exit(1);
  EXPECT_EQ(failure_of(1).what, "bad input");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, waits_no_longer_than_a_while_for_a_cause) {
  plan.world = {3, 3};
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

TEST_F(worker_group_test, waits_for_a_rank_that_left_and_is_in_its_last_hook) {
  plan.world = {3, 3};
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
  activity(1).left_group.store(1);
  fail_by_others(0, "rank 1 has left the group");
  system.pass(ms{2000});
  system.pass(ms{60000});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_THAT(failure_of(1).what, HasSubstr("left the collectives"));
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

// Its process has ended, and its spawner has yet to say how.
TEST_F(worker_group_test, waits_for_a_rank_whose_end_is_not_reported_yet) {
  plan.exit_timeout = ms{500};
  start_all();
  ranks.launcher->ended = {1};
  fail_by_others(0, "a connection was closed");
  system.pass(ms{2000});
  system.pass(ms{500});
  system.pass(ms{100});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.exit(1, {process_exit::kind::lost, 0, "did not say how"});
  EXPECT_EQ(failure_of(1).what, "did not say how");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, the_end_of_a_loop_hides_no_process_that_has_ended) {
  plan.world = {3, 3};
  start_all();
  ranks.launcher->ended = {1};
  fail_by_others(0, "a connection was closed");
  system.pass(ms{2000});
  ranks.finish(2);
  system.pass(ms{100});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.exit(1, {process_exit::kind::lost, 0, "did not say how"});
  EXPECT_EQ(failure_of(1).what, "did not say how");
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

TEST_F(worker_group_test, waits_no_longer_once_those_that_left_ended_well) {
  plan.world = {3, 3};
  start_all();
  activity(0).left_group.store(1);
  fail_by_others(1, "rank 0 has left the group");
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
  plan.world = {3, 3};
  start_all();
  activity(0).left_group.store(1);
  fail_by_others(1, "rank 0 has left the group");
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

TEST_F(worker_group_test, a_late_leaver_is_not_blamed_if_no_other_is_left) {
  plan.world = {3, 3};
  start_all();
  activity(0).left_group.store(1);
  fail_by_others(1, "rank 0 has left the group");
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
  activity(1).left_group.store(1);
  ranks.report(1, 10);
  fail_by_others(0, "rank 1 has left the group");
  system.pass(ms{2000});
  system.pass(ms{20});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(0).what, "rank 1 has left the group");
}

TEST_F(worker_group_test, a_rank_that_was_let_down_by_a_finished_one_failed) {
  start_all();
  ranks.finish(1);
  fail_by_others(0, "rank 1 has left the group");
  EXPECT_EQ(failure_of(0).what, "rank 1 has left the group");
}

TEST_F(worker_group_test,
       an_exception_caused_by_the_order_to_end_is_not_a_failure) {
  plan.world = {3, 3};
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

TEST_F(worker_group_test, a_rank_that_was_never_asked_to_stop_has_failed) {
  start_all();
  ranks.end_loop(0, {ec::stopped, "I had enough"}, true);
  ranks.exit(0);
  system.pass(ms{20});
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(0).what, "I had enough");
}

TEST_F(worker_group_test,
       a_rank_stopped_by_an_aborted_collective_has_not_failed) {
  start_all();
  ranks.kill(1, SIGKILL);
  ranks.end_loop(0, segment().abort_reason());
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
TEST_F(worker_group_test, a_rank_whose_end_is_not_reported_is_not_waited_for) {
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

TEST_F(worker_group_test, a_broken_connection_leaves_the_cause_to_the_process) {
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

TEST_F(worker_group_test, a_timeout_of_the_loops_own_is_blamed_on_no_other) {
  start_all();
  activity(0).enter_collective();
  activity(0).give_up_collective(); // The loop continued.
  activity(0).enter_collective();
  activity(0).leave_collective();
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
  plan.world = {3, 3};
  start_all();
  for (int rank : {0, 2}) {
    activity(rank).enter_collective();
    activity(rank).give_up_collective();
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

} // namespace troupe::internal::test
