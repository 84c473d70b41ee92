#include "troupe/runtime/run/attempt_tracker.hpp"

#include <csignal>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "troupe/runtime/process/process_exit.hpp"

namespace troupe::internal {
namespace {

using kind = rank_failure::kind_type;
using testing::ElementsAre;
using testing::IsEmpty;

class attempt_tracker_test : public testing::Test {
protected:
  void rise(int rank) {
    tracker.launched(rank, 100 + rank);
    tracker.ready(rank, "here");
  }

  void rise_all() {
    for (int rank = 0; rank < tracker.world_size(); ++rank)
      rise(rank);
  }

  void exit(int rank, int code = 0) {
    tracker.exited(rank, {process_exit::kind::exited, code, {}});
  }

  void kill(int rank, int signal) {
    tracker.exited(rank, {process_exit::kind::signaled, signal, {}});
  }

  const rank_failure& failure_of(int rank) {
    return tracker.failures().at(rank);
  }

  attempt_tracker tracker{3};
};

TEST_F(attempt_tracker_test, knows_which_ranks_are_up_and_which_still_exist) {
  EXPECT_THAT(tracker.not_ready(), ElementsAre(0, 1, 2));
  EXPECT_THAT(tracker.still_there(), ElementsAre(0, 1, 2));
  rise(1);
  EXPECT_THAT(tracker.not_ready(), ElementsAre(0, 2));
  EXPECT_EQ(tracker.pid(1), 101);
  EXPECT_EQ(tracker.pid(2), 0);
  rise(0);
  EXPECT_FALSE(tracker.all_ready());
  rise(2);
  EXPECT_TRUE(tracker.all_ready());
  kill(1, SIGKILL);
  EXPECT_THAT(tracker.still_there(), ElementsAre(0, 2));
  EXPECT_TRUE(tracker.gone(1));
}

TEST_F(attempt_tracker_test, knows_its_ranks) {
  EXPECT_TRUE(tracker.knows(0));
  EXPECT_TRUE(tracker.knows(2));
  EXPECT_FALSE(tracker.knows(-1));
  EXPECT_FALSE(tracker.knows(3));
}

TEST_F(attempt_tracker_test, ends_well_when_every_loop_returned) {
  rise_all();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(tracker.all_returned());
    tracker.loop_ended(rank, {}, false);
    EXPECT_TRUE(tracker.loop_over(rank));
    EXPECT_FALSE(tracker.all_gone());
    exit(rank);
  }
  EXPECT_TRUE(tracker.all_returned());
  EXPECT_TRUE(tracker.all_gone());
  EXPECT_FALSE(tracker.failed());
}

TEST_F(attempt_tracker_test,
       what_a_process_does_after_its_loop_counts_no_more) {
  rise_all();
  tracker.loop_ended(0, {}, false);
  kill(0, SIGSEGV);
  EXPECT_FALSE(tracker.failed());
}

TEST_F(attempt_tracker_test, an_exit_before_the_loop_ended_is_a_failure) {
  rise_all();
  exit(1, 3);
  EXPECT_EQ(failure_of(1), (rank_failure{kind::exit_code, 3, {}, 101, "here"}));
  exit(2, 0);
  EXPECT_EQ(failure_of(2).kind, kind::exit_code);
}

TEST_F(attempt_tracker_test,
       a_signal_is_distinguished_from_an_exception_in_a_thread) {
  rise_all();
  kill(0, SIGSEGV);
  tracker.exited(1, {process_exit::kind::signaled, SIGABRT, "it threw"});
  tracker.exited(2, {process_exit::kind::lost, 0, "the spawner is gone"});
  EXPECT_EQ(failure_of(0).kind, kind::signal);
  EXPECT_EQ(failure_of(0).code, SIGSEGV);
  EXPECT_EQ(failure_of(1).kind, kind::thread_exception);
  EXPECT_EQ(failure_of(1).what, "it threw");
  EXPECT_EQ(failure_of(2).kind, kind::lost);
  EXPECT_EQ(failure_of(2).what, "the spawner is gone");
}

TEST_F(attempt_tracker_test, a_kill_stays_one_whose_cause_is_supposed) {
  tracker.exited(0, {process_exit::kind::signaled, SIGKILL, "perhaps"});
  EXPECT_EQ(failure_of(0).kind, kind::signal);
  EXPECT_EQ(to_string(failure_of(0)), "killed by signal 9 (SIGKILL): perhaps");
}

TEST_F(attempt_tracker_test, the_first_failure_of_a_rank_counts) {
  rise_all();
  tracker.loop_ended(0, {ec::rank_failed, "out of range"}, false);
  kill(0, SIGABRT);
  tracker.timed_out(0, "late");
  EXPECT_EQ(failure_of(0).kind, kind::exception);
  EXPECT_EQ(failure_of(0).what, "out of range");
}

TEST_F(attempt_tracker_test, a_rank_that_was_let_down_is_not_the_one_to_blame) {
  rise_all();
  tracker.loop_ended(0, {ec::rank_failed, "rank 1 has left"}, false, true);
  EXPECT_TRUE(tracker.lacks_cause());
  EXPECT_FALSE(tracker.failed());
  EXPECT_TRUE(tracker.may_learn_cause());
  tracker.loop_ended(1, {ec::rank_failed, "bad input"}, false);
  EXPECT_FALSE(tracker.lacks_cause());
  EXPECT_EQ(tracker.failures().size(), 1u);
  EXPECT_EQ(failure_of(1).what, "bad input");
}

TEST_F(attempt_tracker_test, ranks_that_were_let_down_fail_if_no_other_has) {
  rise_all();
  for (int rank : {0, 2})
    tracker.loop_ended(rank, {ec::rank_failed, "rank 1 has left"}, false, true);
  tracker.loop_ended(1, {}, false);
  EXPECT_FALSE(tracker.may_learn_cause());
  tracker.blame_secondary();
  EXPECT_EQ(tracker.failures().size(), 2u);
  EXPECT_EQ(failure_of(0).kind, kind::exception);
  EXPECT_EQ(failure_of(2).what, "rank 1 has left");
  EXPECT_EQ(failure_of(2).pid, 102);
}

TEST_F(attempt_tracker_test, each_kind_of_failure_keeps_its_name) {
  tracker.lost(0, "no answer");
  tracker.record_misuse(1, "two files");
  tracker.timed_out(2, "60 s");
  EXPECT_EQ(failure_of(0).kind, kind::lost);
  EXPECT_EQ(failure_of(1).kind, kind::misuse);
  EXPECT_EQ(failure_of(2).kind, kind::timeout);
  EXPECT_EQ(failure_of(2).what, "60 s");
}

TEST_F(attempt_tracker_test, a_rank_that_was_not_launched_counts_as_ended) {
  tracker.launch_failed(1, {ec::spawn, "no more processes"});
  EXPECT_EQ(failure_of(1).kind, kind::start_failed);
  EXPECT_EQ(failure_of(1).what, "no more processes");
  EXPECT_TRUE(tracker.gone(1));
  EXPECT_FALSE(tracker.loop_failed());
}

TEST_F(attempt_tracker_test, distinguishes_a_failed_loop_from_a_failed_start) {
  rise(0);
  exit(1, 1);
  EXPECT_FALSE(tracker.loop_failed());
  exit(0, 1);
  EXPECT_TRUE(tracker.loop_failed());
}

TEST_F(attempt_tracker_test, ranks_that_end_by_order_have_not_failed) {
  rise_all();
  EXPECT_FALSE(tracker.end_ordered());
  tracker.order_end();
  EXPECT_TRUE(tracker.end_ordered());
  kill(0, SIGKILL);
  tracker.loop_ended(1, {ec::stopped, "stopped"}, true);
  exit(1);
  tracker.loop_ended(2, {}, false);
  exit(2);
  EXPECT_THAT(tracker.failures(), IsEmpty());
  EXPECT_TRUE(tracker.all_gone());
  EXPECT_FALSE(tracker.all_returned());
}

TEST_F(attempt_tracker_test, no_rank_is_blamed_for_an_unknown_end) {
  rise_all();
  tracker.order_end();
  tracker.exited(0, {process_exit::kind::lost, 0, "did not say how"});
  EXPECT_THAT(tracker.failures(), IsEmpty());
  EXPECT_TRUE(tracker.gone(0));
}

TEST_F(attempt_tracker_test, a_rank_that_had_ended_before_the_order_failed) {
  rise_all();
  tracker.order_end({0, 1});
  tracker.exited(0, {process_exit::kind::lost, 0, "did not say how"});
  kill(1, SIGKILL);
  kill(2, SIGKILL);
  EXPECT_EQ(failure_of(0).kind, kind::lost);
  EXPECT_EQ(failure_of(1).code, SIGKILL);
  EXPECT_EQ(tracker.failures().size(), 2u);
}

TEST_F(attempt_tracker_test, a_rank_that_came_too_late_has_not_failed) {
  tracker.order_end();
  exit(0, 1);
  EXPECT_FALSE(tracker.failed());
  kill(1, SIGSEGV);
  EXPECT_EQ(failure_of(1).code, SIGSEGV);
}

TEST_F(attempt_tracker_test, a_launch_that_was_taken_back_has_not_failed) {
  tracker.order_end();
  tracker.launch_failed(1, {ec::spawn, "not wanted any more"});
  EXPECT_TRUE(tracker.gone(1));
  EXPECT_FALSE(tracker.failed());
}

TEST_F(attempt_tracker_test, a_crash_under_way_to_the_end_is_a_failure) {
  rise_all();
  tracker.order_end();
  kill(0, SIGSEGV);
  exit(1, 7);
  EXPECT_EQ(failure_of(0).kind, kind::signal);
  EXPECT_EQ(failure_of(1).code, 7);
}

TEST_F(attempt_tracker_test, a_kill_that_was_not_ordered_is_a_failure) {
  rise_all();
  kill(2, SIGKILL);
  EXPECT_EQ(failure_of(2).code, SIGKILL);
}

TEST_F(attempt_tracker_test, a_thread_that_stays_is_given_up) {
  rise_all();
  for (int rank = 0; rank < 3; ++rank)
    tracker.give_up(rank);
  EXPECT_TRUE(tracker.all_gone());
  EXPECT_FALSE(tracker.failed());
}

TEST_F(attempt_tracker_test, AT_5_a_process_that_stays_is_not_the_cause) {
  rise_all();
  kill(2, SIGSEGV);
  tracker.loop_ended(1, {}, false);
  tracker.order_end();
  for (int rank : {0, 1})
    tracker.leave_behind(rank, "still there");
  EXPECT_TRUE(tracker.all_gone());
  EXPECT_EQ(tracker.failures().size(), 1u);
  EXPECT_EQ(failure_of(2).code, SIGSEGV);
  ASSERT_EQ(tracker.left_behind().size(), 1u) << "the loop of rank 1 was over";
  EXPECT_EQ(tracker.left_behind().at(0),
            (rank_failure{kind::lost, 0, "still there", 100, "here"}));
}

TEST_F(attempt_tracker_test,
       shows_no_secret_that_was_cut_off_in_a_termination_message) {
  ::setenv("HF_TOKEN", "planted-secret", 1);
  rise_all();
  std::string words = "the token is planted-s";
  words.insert(0, max_termination_message - words.size(), '.');
  tracker.exited(0, {process_exit::kind::signaled, SIGABRT, words});
  tracker.exited(1, {process_exit::kind::exited, 1, words.substr(1)});
  ::unsetenv("HF_TOKEN");
  EXPECT_TRUE(failure_of(0).what.ends_with("the token is ***"));
  EXPECT_TRUE(failure_of(1).what.ends_with("the token is planted-s"));
}

} // namespace
} // namespace troupe::internal
