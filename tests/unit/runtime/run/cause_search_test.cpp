#include "troupe/runtime/run/cause_search.hpp"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/start_time.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using failure = rank_failure::kind_type;
using step = cause_search::step;
using test::t0;
using testing::HasSubstr;

/// Three ranks that run, and what each shows.
class cause_search_test : public testing::Test {
protected:
  cause_search_test() {
    for (int rank = 0; rank < 3; ++rank) {
      attempt.launched(rank, 100 + rank);
      attempt.ready(rank, "here");
    }
  }

  rank_snapshot& shown(int rank) {
    return ranks[static_cast<std::size_t>(rank)];
  }

  void end_loop(const cause_search::loop_end& x) {
    cause_search::loop_ended(attempt, meetings, x, ranks);
  }

  /// The loop of *rank* ends with an exception.
  void fail(int rank, ec code = ec::rank_failed) {
    end_loop({rank, {code, "it failed"}});
  }

  /// The same, because others had left a collective.
  void fail_by_others(int rank) {
    shown(rank).failed = collective_failure::others;
    fail(rank, ec::rank_failed);
  }

  void kill(int rank) {
    attempt.exited(rank, {process_exit::kind::signaled, SIGKILL, {}});
  }

  step failed() { return search.failed(attempt, ranks, meetings); }
  step looked() { return search.looked(attempt, ranks, meetings); }

  bool is_to_blame(int rank) const { return attempt.failures().contains(rank); }

  void expect_look_after(step x, std::chrono::milliseconds delay) {
    EXPECT_EQ(x.what, step::kind::look);
    EXPECT_EQ(x.delay, delay);
  }

  void expect_nothing(step x) { EXPECT_EQ(x.what, step::kind::none); }

  attempt_tracker attempt{3};
  std::vector<rank_snapshot> ranks{{.rank = 0}, {.rank = 1}, {.rank = 2}};
  rank_meetings meetings{3, 0};
  cause_search search{{.exit = 7s, .stop = 5s}};
};

// -- CS-1

TEST_F(cause_search_test, CS_1_a_killed_rank_ends_all_at_once) {
  expect_nothing(failed());
  kill(1);
  auto x = failed();
  EXPECT_EQ(x.what, step::kind::end);
  EXPECT_EQ(x.delay, 0ms);
  EXPECT_EQ(x.grace, 0ms);
  EXPECT_EQ(x.reason.code, ec::stopped);
  EXPECT_THAT(x.reason.message, HasSubstr("rank 1 failed: killed by signal 9"));
}

TEST_F(cause_search_test, CS_1_an_exception_waits_for_a_kill_behind_it) {
  fail(0);
  auto x = failed();
  EXPECT_EQ(x.what, step::kind::end);
  EXPECT_EQ(x.delay, cause_search::settle_time);
  EXPECT_THAT(x.reason.message, HasSubstr("rank 0 failed"));
  kill(1);
  expect_nothing(failed());
  EXPECT_TRUE(is_to_blame(1)) << "although the end is under way";
}

TEST_F(cause_search_test, CS_1_threads_have_time_to_leave_their_loops) {
  search = cause_search{{.exit = 7s, .stop = 5s, .in_process = true}};
  fail(0);
  auto x = failed();
  EXPECT_EQ(x.what, step::kind::end);
  EXPECT_EQ(x.delay, 0ms);
  EXPECT_EQ(x.grace, 5s);
}

// -- CS-2 to CS-4: secondary failures

TEST_F(cause_search_test, CS_2_a_cause_in_time_takes_the_blame) {
  fail_by_others(0);
  expect_look_after(failed(), cause_search::cause_patience);
  fail_by_others(2);
  expect_nothing(failed());
  kill(1);
  EXPECT_EQ(failed().what, step::kind::end);
  EXPECT_TRUE(is_to_blame(1));
  EXPECT_FALSE(is_to_blame(0));
  EXPECT_FALSE(is_to_blame(2));
}

TEST_F(cause_search_test, CS_2_a_rank_that_left_has_longer) {
  shown(1).left_group = true;
  fail_by_others(0);
  expect_look_after(failed(), cause_search::cause_patience);
  expect_look_after(looked(), 7s);
  expect_nothing(failed());
  fail(1);
  EXPECT_EQ(failed().what, step::kind::end);
  EXPECT_TRUE(is_to_blame(1));
  EXPECT_FALSE(is_to_blame(0));
}

TEST_F(cause_search_test, CS_2_one_that_leaves_later_is_not_waited_for) {
  shown(1).left_group = true;
  fail_by_others(0);
  failed();
  looked();
  shown(2).left_group = true;
  attempt.loop_ended(1, {}, false);
  EXPECT_EQ(failed().what, step::kind::end);
  EXPECT_TRUE(is_to_blame(0));
}

TEST_F(cause_search_test, CS_2_one_that_waits_for_others_is_not_waited_for) {
  shown(1).left_group = true;
  ASSERT_TRUE(meetings.add({.rank = 1, .index = 0}, true, t0));
  fail_by_others(0);
  failed();
  EXPECT_EQ(looked().what, step::kind::end);
  EXPECT_TRUE(is_to_blame(0));
}

TEST_F(cause_search_test, CS_3_one_that_left_and_does_not_end_is_to_blame) {
  shown(1).left_group = true;
  fail_by_others(0);
  failed();
  looked();
  auto x = looked();
  EXPECT_EQ(x.what, step::kind::end);
  EXPECT_EQ(x.delay, 0ms);
  ASSERT_TRUE(is_to_blame(1));
  EXPECT_FALSE(is_to_blame(0));
  EXPECT_EQ(attempt.failures().at(1).kind, failure::timeout);
  EXPECT_THAT(attempt.failures().at(1).what, HasSubstr("7 s later"));
}

TEST_F(cause_search_test, CS_3_the_end_of_its_process_is_the_cause) {
  fail_by_others(0);
  failed();
  shown(1).has_ended = true;
  expect_look_after(looked(), 7s);
  expect_nothing(looked());
  kill(1);
  EXPECT_EQ(failed().what, step::kind::end);
  EXPECT_EQ(attempt.failures().at(1).kind, failure::signal);
  EXPECT_FALSE(is_to_blame(0));
}

TEST_F(cause_search_test, CS_4_without_a_leaver_they_are_to_blame) {
  fail_by_others(0);
  failed();
  auto x = looked();
  EXPECT_EQ(x.what, step::kind::end);
  EXPECT_EQ(x.delay, cause_search::settle_time);
  EXPECT_TRUE(is_to_blame(0));
}

TEST_F(cause_search_test, CS_4_do_not_wait_if_no_rank_is_left) {
  fail_by_others(0);
  failed();
  fail_by_others(1);
  fail_by_others(2);
  EXPECT_EQ(failed().what, step::kind::end);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(is_to_blame(rank));
}

// -- the ends of loops

TEST_F(cause_search_test, a_rank_that_gave_up_blames_those_that_are_late) {
  shown(0).gave_up = true;
  shown(0).collectives = shown(2).collectives = 4;
  shown(1).collectives = 3;
  fail(0, ec::timeout);
  EXPECT_TRUE(is_to_blame(1));
  EXPECT_FALSE(is_to_blame(0));
  EXPECT_FALSE(is_to_blame(2));
}

TEST_F(cause_search_test, another_timeout_of_a_loop_is_its_own) {
  shown(0).collectives = 4;
  fail(0, ec::timeout);
  EXPECT_TRUE(is_to_blame(0));
  EXPECT_FALSE(is_to_blame(1));
}

TEST_F(cause_search_test, blames_no_late_rank_once_all_are_to_end) {
  attempt.order_end();
  shown(0).gave_up = true;
  shown(0).collectives = 4;
  fail(0, ec::timeout);
  EXPECT_FALSE(attempt.failed());
}

TEST_F(cause_search_test, an_end_by_order_is_none_of_its_own) {
  attempt.order_end();
  end_loop({.rank = 0, .reason = {ec::rank_failed, "x"}, .was_stopped = true});
  end_loop({.rank = 1, .reason = {ec::rank_failed, "x"}, .was_in_call = true});
  fail_by_others(2);
  EXPECT_FALSE(attempt.failed());
}

TEST_F(cause_search_test, an_end_for_the_order_shows_by_its_code) {
  attempt.order_end();
  fail(0, ec::stopped);
  EXPECT_FALSE(attempt.failed());
  fail(1, ec::rank_failed);
  EXPECT_TRUE(is_to_blame(1)) << "it could not know of the order";
}

TEST_F(cause_search_test, an_end_before_the_order_is_a_failure) {
  fail(0, ec::stopped);
  end_loop({.rank = 1, .reason = {ec::rank_failed, "x"}, .was_in_call = true});
  EXPECT_TRUE(is_to_blame(0));
  EXPECT_TRUE(is_to_blame(1));
}

TEST_F(cause_search_test, CS_5_a_loop_that_others_wait_for_must_not_return) {
  ASSERT_TRUE(meetings.arrive({.rank = 0}, t0));
  end_loop({.rank = 1});
  ASSERT_TRUE(is_to_blame(1));
  EXPECT_EQ(attempt.failures().at(1).kind, failure::misuse);
  EXPECT_TRUE(attempt.loop_over(1));
}

TEST_F(cause_search_test, CS_5_one_that_fails_breaks_no_such_rule) {
  ASSERT_TRUE(meetings.arrive({.rank = 0}, t0));
  fail(1);
  EXPECT_EQ(attempt.failures().at(1).kind, failure::exception);
}

TEST_F(cause_search_test, CS_5_it_may_return_once_all_are_to_end) {
  ASSERT_TRUE(meetings.arrive({.rank = 0}, t0));
  attempt.order_end();
  end_loop({.rank = 1});
  EXPECT_FALSE(attempt.failed());
}

TEST_F(cause_search_test, a_loop_that_no_one_waits_for_may_return) {
  end_loop({.rank = 1});
  EXPECT_FALSE(attempt.failed());
  EXPECT_TRUE(attempt.loop_over(1));
}

} // namespace
} // namespace troupe::internal
