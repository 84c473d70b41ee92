// The worker group as hosts announce that they are about to leave.

#include <csignal>

#include "tests/actors/joining_host_fixture.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(joining_host_test, a_notice_lets_all_ranks_save_first) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(30'000);
  auto mine = ranks.report(0, 0);
  auto other_answer = theirs.report(1, 0);
  answer_batch();
  for (auto& answer : {mine, other_answer}) {
    ASSERT_TRUE(answer->value);
    ASSERT_TRUE(answer->value->stop);
    EXPECT_EQ(answer->value->stop->index, 0u);
    EXPECT_EQ(answer->value->stop->kind, stop_info::kind_type::continues);
    EXPECT_THAT(answer->value->stop->reason, HasSubstr("host h1 is about to"));
    EXPECT_EQ(answer->value->stop->left_ms, 25'000) << "then they are ended";
  }
  ranks.report(0, 1); // Its last checkpoint.
  theirs.report(1, 1);
  answer_batch();
  ranks.finish(0);
  theirs.finish(1);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_FALSE(record->ended[0].stopped);
  EXPECT_NE(record->ended[0].left_for, "");
  // Its agent is let go, and the next attempt waits for another one.
  EXPECT_FALSE(state().hosts->agent_at(1));
  send_anonymous(ranks.group, start_attempt{4, {}, 2}, driver);
  system.settle();
  EXPECT_EQ(ranks.launcher->launched.size(), 1u);
  join(2);
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
}

TEST_F(joining_host_test, ranks_that_stay_too_long_are_ended_for_the_next) {
  played_ranks theirs{system};
  start_with(theirs);
  expect_ended_for(theirs);
}

TEST_F(joining_host_test, a_host_that_does_not_say_has_the_grace_of_the_run) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(-1);
  pass_alive(24, 1);
  EXPECT_FALSE(ranks.asked_to_end(0));
  pass_alive(1, 1);
  EXPECT_TRUE(ranks.asked_to_end(0));
  EXPECT_TRUE(theirs.asked_to_end(1));
}

// The driver has not asked for this end, and waits for one that it can act on.
TEST_F(joining_host_test, ranks_of_a_run_that_is_done_are_ended_for_the_host) {
  played_ranks theirs{system};
  start_with(theirs);
  record->stop = stop_notice{0, "enough", 0, stop_info::kind_type::finished};
  ranks.report(0, 0);
  theirs.report(1, 0);
  answer_batch();
  expect_ended_for(theirs);
}

TEST_F(joining_host_test, ranks_of_a_preempted_run_are_ended_for_the_host) {
  played_ranks theirs{system};
  start_with(theirs);
  send_anonymous(ranks.group, preempt_attempt{3, "SIGTERM", 0});
  expect_ended_for(theirs);
}

TEST_F(joining_host_test, loops_that_returned_left_for_no_host) {
  played_ranks theirs{system};
  start_leaving(theirs);
  ranks.finish(0);
  theirs.end_loop(1);
  pass_alive(15, 1);
  theirs.exit(1);
  expect_finished();
}

TEST_F(joining_host_test, a_host_whose_loops_returned_leaves_alone) {
  played_ranks theirs{system};
  start_with(theirs);
  theirs.end_loop(1);
  notice(20'000);
  pass_alive(20, 1);
  EXPECT_FALSE(ranks.asked_to_end(0));
  theirs.exit(1);
  ranks.finish(0);
  expect_finished();
}

// The agent that had them is lost.
TEST_F(joining_host_test, a_host_whose_agent_has_no_ranks_leaves_alone) {
  played_ranks theirs{system};
  start_with(theirs);
  theirs.end_loop(1);
  lose();
  join(2);
  notice(20'000, 2);
  EXPECT_FALSE(state().hosts->agent_at(1));
  pass_seconds(20);
  EXPECT_FALSE(ranks.asked_to_end(0));
  ranks.finish(0);
  expect_finished();
}

TEST_F(joining_host_test, a_notice_of_the_next_agent_excuses_no_loss) {
  played_ranks theirs{system};
  start_with(theirs);
  lose();
  join(2);
  notice(20'000, 2);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  expect_counts();
}

TEST_F(joining_host_test, ranks_lost_with_a_host_that_leaves_have_not_failed) {
  played_ranks theirs{system};
  start_leaving(theirs);
  lose();
  ranks.kill(0, SIGKILL);
  expect_excused(1, kind::lost);
}

// A host that ends may kill its ranks before its agent.
TEST_F(joining_host_test, ranks_killed_on_a_host_that_leaves_have_not_failed) {
  played_ranks theirs{system};
  start_leaving(theirs);
  theirs.kill(1, SIGKILL);
  ranks.kill(0, SIGKILL);
  expect_excused(1, kind::signal);
}

TEST_F(joining_host_test, ranks_killed_before_a_notice_have_not_failed) {
  played_ranks theirs{system};
  start_with(theirs);
  theirs.kill(1, SIGKILL);
  notice(20'000);
  ranks.kill(0, SIGKILL);
  expect_excused(1, kind::signal);
}

TEST_F(joining_host_test, a_crash_on_a_host_that_leaves_is_a_failure) {
  played_ranks theirs{system};
  start_leaving(theirs);
  theirs.kill(1, SIGSEGV);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  expect_counts();
}

// Such as one that waits for a disk. Its host answers, so that nothing else
// tells the next attempt not to wait for it.
TEST_F(joining_host_test, a_rank_that_cannot_be_killed_is_left_with_its_host) {
  played_ranks theirs{system};
  start_leaving(theirs);
  pass_alive(15, 1);
  ranks.obey(0);
  pass_alive(5, 1);
  EXPECT_EQ(theirs.launcher->killed, std::vector{1});
  pass_alive(12, 1);
  EXPECT_THAT(abandoned, testing::IsEmpty());
  pass_seconds(1);
  expect_excused(1, kind::lost);
  EXPECT_THAT(abandoned, ElementsAre("h1"));
}

TEST_F(joining_host_test, a_rank_that_stays_on_another_host_has_not_failed) {
  played_ranks theirs{system};
  start_leaving(theirs);
  pass_alive(15, 1);
  theirs.obey(1);
  pass_alive(5, 1);
  EXPECT_EQ(ranks.launcher->killed, std::vector{0});
  pass_alive(9, 1);
  EXPECT_TRUE(record->failed.empty());
  pass_seconds(1);
  EXPECT_EQ(failure_of(0).kind, kind::lost);
  EXPECT_THAT(record->failed[0].left_for, HasSubstr("host h1 is about to"));
}

TEST_F(joining_host_test, a_failure_while_a_host_leaves_is_one) {
  played_ranks theirs{system};
  start_leaving(theirs);
  ranks.end_loop(0, {ec::rank_failed, "x"});
  pass_seconds(1);
  ranks.exit(0);
  theirs.exit(1);
  EXPECT_EQ(failure_of(0).what, "x");
  expect_counts();
}

TEST_F(joining_host_test, a_notice_of_an_agent_that_was_replaced_is_dropped) {
  start();
  join(1);
  send_anonymous(ranks.group, host_notice{1, 7, "SIGTERM", -1});
  system.settle();
  EXPECT_TRUE(state().hosts->agent_at(1));
  EXPECT_THAT(notes, Not(HasSubstr("about to leave")));
}

TEST_F(joining_host_test,
       a_warning_of_an_agent_is_shown_unless_it_is_replaced) {
  start();
  join(1);
  send_anonymous(ranks.group, host_warning{1, 1, "a connection is closed"});
  send_anonymous(ranks.group, host_warning{1, 7, "a late word"});
  system.settle();
  EXPECT_THAT(notes, HasSubstr(": a connection is closed\n"));
  EXPECT_THAT(notes, Not(HasSubstr("a late word")));
}

} // namespace troupe::internal::test
