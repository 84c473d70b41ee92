// The worker group as hosts are lost, silent or fenced.

#include <csignal>

#include "tests/actors/joining_host_fixture.hpp"
#include "troupe/actors/agent_pulse.hpp"

namespace troupe::internal::test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(joining_host_test, a_lost_host_ends_the_attempt_and_the_next_waits) {
  start();
  join(1);
  lose();
  ranks.exit(0);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_THAT(notes, Not(HasSubstr("is lost"))) << "the driver shows it";
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  EXPECT_EQ(ranks.launcher->launched.size(), 1u);
  join(2);
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(joining_host_test, a_host_may_come_back_before_the_attempt_is_over) {
  start();
  join(1);
  lose();
  join(2);
  EXPECT_TRUE(elsewhere->launched.empty());
  ranks.exit(0);
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(joining_host_test, a_host_whose_agent_ticks_stays_for_hours) {
  join(1);
  pass_alive(7200, 1);
  EXPECT_TRUE(cut_off.empty());
  EXPECT_THAT(notes, Not(HasSubstr("answer")));
}

TEST_F(joining_host_test, a_short_silence_is_shown_and_costs_nothing) {
  start();
  join(1);
  pass_alive(2, 1);
  pass_seconds(4);
  EXPECT_THAT(notes, HasSubstr("host h1 has not answered for 3 s"));
  EXPECT_THAT(notes, Not(HasSubstr("answers again")));
  EXPECT_TRUE(tick(1)->value);
  EXPECT_THAT(notes, HasSubstr("host h1 answers again"));
  pass_alive(20, 1);
  EXPECT_TRUE(record->failed.empty());
  EXPECT_TRUE(cut_off.empty());
}

TEST_F(joining_host_test, a_host_that_is_silent_for_long_is_lost_and_fenced) {
  start();
  join(1);
  pass_seconds(9);
  EXPECT_TRUE(cut_off.empty());
  pass_seconds(1);
  EXPECT_THAT(cut_off, ElementsAre(other));
  EXPECT_THAT(abandoned, ElementsAre("h1"));
  EXPECT_THAT(events, ElementsAre(HasSubstr("host_joined"),
                                  AllOf(HasSubstr("host_lost"), HasSubstr("h1"),
                                        HasSubstr("did not answer for 10 s"))));
  // The agent takes no message: its rank is given up without an answer.
  ranks.exit(0);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_THAT(failure_of(1).what,
              HasSubstr("host h1 is lost: it did not answer for 10 s"));
}

// N6: what a frozen host sends after its thaw, before it finds its connection
// closed.
TEST_F(joining_host_test, nothing_of_a_fenced_host_counts_after_its_thaw) {
  start();
  join(1);
  pass_seconds(10);
  ranks.exit(0);
  auto first = other;
  EXPECT_EQ(tick(1)->failure.code, ec::stopped);
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  join(2); // The replacement.
  ranks.attempt = 4;
  ASSERT_EQ(elsewhere->launched.size(), 1u);
  host_calls late{3, {}};
  late.calls.emplace_back().what = report{3, {1, 0, {{"x", 1}}, {}}};
  send_anonymous(ranks.group, late);
  send_anonymous(ranks.group, rank_exited{3, 1, {}});
  send_anonymous(ranks.group, rank_loop_ended{3, {3, 1}, false, {}});
  system.settle();
  EXPECT_FALSE(state().attempt->tracker.gone(1));
  EXPECT_FALSE(state().attempt->tracker.loop_over(1));
  EXPECT_TRUE(record->batches.empty());
  EXPECT_EQ(record->failed.size(), 1u);
  // Its end, of which the group learns now, is not that of the replacement.
  caf::anon_send_exit(first, caf::exit_reason::remote_link_unreachable);
  system.settle();
  pass_alive(20, 2);
  EXPECT_EQ(record->failed.size(), 1u);
  EXPECT_EQ(tick(1)->failure.code, ec::stopped);
}

TEST_F(joining_host_test, the_hosts_are_not_blamed_for_the_drivers_standstill) {
  start();
  join(1);
  pass_alive(5, 1);
  system.pass(std::chrono::hours{1}); // A signal stopped the driver.
  pass_alive(5, 1);
  EXPECT_TRUE(record->failed.empty());
  EXPECT_THAT(notes, Not(HasSubstr("answered")));
}

TEST_F(joining_host_test, the_pulse_of_an_agent_keeps_its_host) {
  start();
  join(1);
  auto pulse = system.spawn(agent_pulse, agent_pulse_args{ranks.group, 1, 1});
  pass_seconds(60);
  EXPECT_TRUE(cut_off.empty());
  caf::anon_send_exit(pulse, caf::exit_reason::kill);
  pass_seconds(11);
  EXPECT_THAT(cut_off, ElementsAre(other));
}

TEST_F(joining_host_test, a_host_lost_after_its_loops_returned_costs_nothing) {
  played_ranks theirs{system};
  start_with(theirs);
  theirs.end_loop(1);
  lose();
  EXPECT_THAT(notes, HasSubstr("host h1 is lost"));
  EXPECT_FALSE(ranks.asked_to_end(0));
  ranks.finish(0);
  EXPECT_TRUE(record->failed.empty());
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_FALSE(record->ended[0].stopped);
}

// Its ranks fail for nothing that the driver could show.
TEST_F(joining_host_test, says_that_a_host_is_lost_while_its_ranks_end) {
  played_ranks theirs{system};
  start_with(theirs);
  stop();
  lose();
  EXPECT_THAT(notes, HasSubstr("host h1 is lost"));
  ranks.obey(0);
  EXPECT_EQ(record->ended.size(), 1u);
}

// Such as a process that a rank has forked there into a session of its own.
TEST_F(joining_host_test,
       what_is_left_of_a_lost_spawner_holds_no_attempt_back) {
  played_ranks theirs{system};
  start_with(theirs);
  theirs.exit(1, {process_exit::kind::lost, 0, "ended with the spawner"});
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_THAT(abandoned, ElementsAre("h1"));
}

} // namespace troupe::internal::test
