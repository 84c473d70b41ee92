// Which ends of ranks count as failures of an elastic run, and which follow
// from the loss of a host or leave a host out.

#include <csignal>

#include "tests/actors/elastic_group_fixture.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;
using testing::Not;

// Both freeze in the same second, but the network breaks for one of them.
TEST_F(elastic_group_test, two_hosts_lost_at_once_do_not_count_as_a_failure) {
  start_three();
  lose(second.agent);
  EXPECT_EQ(third.launcher->killed, std::vector{2});
  ranks.kill(0, SIGKILL);
  pass_seconds(1);
  tick(2, 2); // Its last sign of life.
  pass_seconds(11);
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_NE(record->failed[0].left_for, "");
  EXPECT_EQ(abandoned.size(), 2u);
}

TEST_F(elastic_group_test,
       a_rank_killed_before_its_host_does_not_count_as_a_failure) {
  start_three();
  second.kill(1, SIGKILL);
  lose(second.agent);
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  expect_excused(1, kind::signal);
}

// Such as one that writes a large checkpoint to a slow disk.
TEST_F(elastic_group_test,
       a_rank_that_stays_as_another_host_is_lost_is_not_a_failure) {
  start_three();
  lose(second.agent);
  third.kill(2, SIGKILL);
  for (int i = 0; i < 11; ++i) {
    pass_seconds(1);
    tick(2, 2);
  }
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  expect_excused(0, kind::lost);
}

TEST_F(elastic_group_test, a_rank_that_stays_excuses_no_other) {
  start_three();
  second.kill(1, SIGSEGV);
  third.kill(2, SIGKILL);
  pass_both_alive(11);
  EXPECT_EQ(failure_of(0).kind, kind::lost);
  expect_counts();
}

/// A limit is shorter than the time until a silent host is lost. The second
/// host is silent.
class early_limit_test : public elastic_group_test {
protected:
  early_limit_test() {
    plan.report_timeout = ms{5000};
    host_limits limits{.join = ms{1500}, .lost_after = ms{40'000}};
    limits.min_ranks = 2;
    spawn_group({{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 1, 1}},
                 own_facts(),
                 limits,
                 "10.0.0.1 port 7"});
    start_three();
    system.hold(second.agent);
  }

  /// Ranks end for the limit, and then the second host is lost.
  void exceed_limit() {
    for (int i = 0; i < 39 && !ranks.asked_to_end(0); ++i) {
      pass_seconds(1);
      tick(2, 2);
    }
    ranks.kill(0, SIGKILL);
    third.kill(2, SIGKILL);
    EXPECT_TRUE(record->failed.empty());
    for (int i = 0; i < 40 && record->failed.empty(); ++i) {
      pass_seconds(1);
      tick(2, 2);
    }
  }
};

TEST_F(early_limit_test, that_a_lost_host_exceeds_is_not_a_failure) {
  ranks.report(0, 0);
  third.report(2, 0);
  exceed_limit();
  expect_excused(1, kind::timeout);
}

// Rank 2 waits for data of the lost host.
TEST_F(early_limit_test, that_ranks_of_other_hosts_exceed_for_it_is_none) {
  ranks.report(0, 0);
  exceed_limit();
  expect_excused(1, kind::timeout);
  expect_excused(2, kind::timeout);
}

// The order to start ranks comes back as an error, too.
TEST_F(elastic_group_test, a_host_lost_as_its_ranks_start_is_not_a_failure) {
  join_as(second, 1);
  join_as(third, 2);
  system.hold(second.agent);
  lose(second.agent);
  begin(3);
  system.release();
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  expect_excused(1, kind::lost);
}

// Its spawner ends before its agent does.
TEST_F(elastic_group_test, a_start_that_fails_with_its_host_is_not_a_failure) {
  join_as(second, 1);
  join_as(third, 2);
  begin(3);
  ranks.rise(0);
  second.launcher->fail(1, {ec::spawn, "the spawner has ended"});
  system.settle();
  lose(second.agent);
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  expect_excused(1, kind::start_failed);
}

TEST_F(elastic_group_test, a_rank_that_fails_by_itself_is_a_failure) {
  start_three();
  second.kill(1, SIGKILL);
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  EXPECT_EQ(record->failed[0].left_for, "");
}

TEST_F(elastic_group_test, leaves_a_host_out_that_cannot_start_ranks) {
  crash_three();
  fail_to_start(4);
  ASSERT_EQ(record->failed.size(), 2u);
  EXPECT_THAT(record->failed[1].left_for, HasSubstr("no more processes"));
  EXPECT_THAT(notes, HasSubstr("host h1 gets no ranks for 1 min: "));
  begin(5);
  ranks.rise(0);
  second.rise(1);
  EXPECT_EQ(record->started.at(1).world_size, 2);
  pass_both_alive(61);
  EXPECT_TRUE(report_both(0, "c0")->value->stop) << "it is tried again";
}

TEST_F(elastic_group_test, leaves_a_host_out_while_a_rank_elsewhere_stays) {
  crash_three();
  start_without_third(4);
  second.kill(1, SIGKILL);
  pass_both_alive(11);
  ASSERT_EQ(record->failed.size(), 2u);
  EXPECT_TRUE(record->failed[1].ranks.contains(0));
  EXPECT_THAT(record->failed[1].left_for, HasSubstr("no more processes"));
  EXPECT_THAT(record->failed[1].left_for, Not(HasSubstr("left behind")));
}

// Before that, the program may be the cause.
TEST_F(elastic_group_test, a_failed_start_counts_until_an_attempt_has_come_up) {
  join_as(second, 1);
  join_as(third, 2);
  fail_to_start(3);
  expect_counts();
  EXPECT_FALSE(record->failed[0].started);
  begin(4);
  EXPECT_EQ(second.launcher->prepared.at(0).world_size, 2);
}

TEST_F(elastic_group_test, leaves_a_new_host_out_on_which_loops_fail) {
  start_two();
  join_as(third, 2);
  EXPECT_TRUE(report_both(0, "c0")->value->stop);
  ranks.finish(0);
  second.finish(1);
  begin(4, 1);
  ranks.rise(0);
  second.rise(1);
  third.rise(2);
  third.kill(2, SIGILL);
  ranks.kill(0, SIGKILL);
  second.kill(1, SIGKILL);
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_THAT(record->failed[0].left_for,
              HasSubstr("ranks failed before a report on h1: rank 2: "));
  EXPECT_THAT(notes, HasSubstr("host h1 gets no ranks for 1 min: "));
  begin(5, 1);
  EXPECT_EQ(second.launcher->prepared.at(0).world_size, 2);
}

TEST_F(elastic_group_test, a_loop_that_fails_after_a_report_is_a_failure) {
  start_three();
  ranks.report(0, 0);
  second.report(1, 0);
  third.report(2, 0);
  answer_batch();
  third.kill(2, SIGILL);
  ranks.kill(0, SIGKILL);
  second.kill(1, SIGKILL);
  expect_counts();
}

// No attempt has shown yet that the loops work anywhere.
TEST_F(elastic_group_test, a_loop_that_fails_before_any_report_is_a_failure) {
  join_as(second, 1);
  join_as(third, 2);
  begin(3);
  third.rise(2);
  third.kill(2, SIGILL);
  ranks.kill(0, SIGKILL);
  second.kill(1, SIGKILL);
  expect_counts();
  begin(4);
  EXPECT_EQ(second.launcher->prepared.at(0).world_size, 3);
}

/// How rank 0 may fail: an exception leaves its loop, or a watchdog of the
/// loop's libraries ends its process since its collective failed.
class failing_rank_test
  : public elastic_group_test,
    public testing::WithParamInterface<rank_failure::kind_type> {
protected:
  void fail() {
    if (GetParam() == kind::signal) {
      ranks.kill(0, SIGABRT);
      return;
    }
    ranks.end_loop(0, {ec::rank_failed, "a connection was closed"});
    ranks.exit(0);
  }
};

INSTANTIATE_TEST_SUITE_P(by, failing_rank_test,
                         testing::Values(rank_failure::kind_type::exception,
                                         rank_failure::kind_type::signal),
                         [](auto& x) {
                           return x.param == rank_failure::kind_type::signal
                                    ? "signal"
                                    : "exception";
                         });

TEST_P(failing_rank_test, a_failure_since_a_host_is_silent_is_its_loss) {
  start_two();
  pass_alive(1, 1);
  pass_seconds(5);
  fail();
  pass_seconds(6);
  expect_excused(0, GetParam());
}

TEST_P(failing_rank_test, a_failure_before_the_last_sign_of_a_host_counts) {
  start_two();
  fail();
  pass_alive(2, 1);
  pass_seconds(12);
  expect_counts();
}

// The host went down meanwhile, after its tick; both are handled late.
TEST_P(failing_rank_test, a_failure_while_the_driver_stood_still_is_its_loss) {
  start_two();
  pass_alive(1, 1);
  system.hold(ranks.group);
  fail();
  system.pass(std::chrono::minutes{1});
  system.release();
  system.pass(ms{1});
  tick(1);
  lose(second.agent);
  pass_seconds(1);
  expect_excused(0, GetParam());
}

/// Rank 0 returns from its loop while rank 2 waits for it in a report.
class early_return_test : public elastic_group_test {
protected:
  early_return_test() {
    start_three();
    third.report(2, 0);
  }

  void leave() {
    ranks.finish(0);
    third.kill(2, SIGKILL);
  }

  /// Passes time in which the second host is silent if it *is_silent*.
  void pass_with(int seconds, bool is_silent) {
    for (int i = 0; i < seconds; ++i) {
      pass_seconds(1);
      tick(2, 2);
      if (!is_silent)
        tick(1, 1);
    }
  }
};

// Its collective failed, and the loop has caught the exception.
TEST_F(early_return_test, a_return_since_a_host_is_silent_is_its_loss) {
  pass_with(1, false);
  pass_with(5, true);
  leave();
  EXPECT_TRUE(record->failed.empty());
  pass_with(6, true);
  expect_excused(0, kind::misuse);
}

TEST_F(early_return_test, a_return_before_the_last_sign_of_a_host_counts) {
  leave();
  pass_with(2, false);
  pass_with(12, true);
  EXPECT_EQ(failure_of(0).kind, kind::misuse);
  expect_counts();
}

TEST_F(elastic_group_test, an_end_after_a_host_is_lost_follows_from_its_loss) {
  start_two();
  pass_alive(1, 1);
  lose(second.agent);
  ranks.kill(0, SIGABRT);
  expect_excused(0, kind::signal);
}

} // namespace troupe::internal::test
