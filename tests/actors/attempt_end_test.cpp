#include "troupe/actors/attempt_end.hpp"

#include <gtest/gtest.h>

namespace troupe::internal::test {

namespace {

/// The event after *x*, which is to be a *T*.
template <class T>
T event_of(const attempt_end& x) {
  auto event = x.event ? std::get_if<T>(&*x.event) : nullptr;
  EXPECT_TRUE(event);
  return event ? *event : T{};
}

const std::map<int, rank_failure> killed_rank{
  {1, {rank_failure::kind_type::signal, 9, {}, 0, {}}}};

TEST(attempt_end_test, loops_that_returned_end_the_run) {
  for (auto is_awaited : {true, false}) {
    auto end = end_of(attempt_ended{3}, is_awaited);
    EXPECT_FALSE(end.reason);
    auto event = event_of<run_events::ranks_finished>(end);
    EXPECT_EQ(event.attempt, 3u);
    EXPECT_FALSE(event.preempted);
  }
}

TEST(attempt_end_test, ranks_that_were_preempted_end_the_run) {
  auto end = end_of(attempt_ended{.attempt = 3, .preempted = true}, true);
  EXPECT_EQ(end.reason.code, ec::stopped);
  EXPECT_TRUE(event_of<run_events::ranks_finished>(end).preempted);
}

TEST(attempt_end_test, nothing_follows_once_the_run_has_stopped_its_ranks) {
  auto end = end_of(attempt_ended{.attempt = 3, .stopped = true}, false);
  EXPECT_EQ(end.reason.code, ec::stopped);
  EXPECT_FALSE(end.event);
}

TEST(attempt_end_test, ranks_that_end_while_the_run_needs_them_are_continued) {
  auto end = end_of(attempt_ended{.attempt = 3, .stopped = true}, true);
  EXPECT_EQ(end.reason.code, ec::stopped);
  auto event = event_of<run_events::ranks_left>(end);
  EXPECT_EQ(event.attempt, 3u);
  EXPECT_NE(event.why, "");
}

TEST(attempt_end_test, ranks_that_left_are_continued_whatever_else_was_asked) {
  attempt_ended x{.attempt = 3, .left_for = "see https://me:hunter2@h1"};
  for (auto stopped : {true, false}) {
    x.stopped = stopped;
    auto end = end_of(x, false);
    EXPECT_EQ(end.reason.code, ec::stopped);
    auto event = event_of<run_events::ranks_left>(end);
    EXPECT_EQ(event.attempt, 3u);
    EXPECT_EQ(event.why, "see https://***@h1");
  }
}

TEST(attempt_end_test, ranks_that_failed_count_once_they_had_started) {
  attempt_failed x{3, true, {ec::stopped, "x"}, killed_rank};
  auto end = end_of(x, "Rank 1: killed");
  EXPECT_EQ(end.reason, (error{ec::rank_failed, "Rank 1: killed"}));
  auto event = event_of<run_events::ranks_failed>(end);
  EXPECT_EQ(event.attempt, 3u);
  EXPECT_EQ(event.failures, killed_rank);
}

TEST(attempt_end_test, ranks_that_failed_before_are_a_failure_of_the_start) {
  attempt_failed x{3, false, {ec::stopped, "x"}, killed_rank};
  auto end = end_of(x, "Rank 1: killed");
  EXPECT_EQ(end.reason.code, ec::rank_failed);
  auto event = event_of<run_events::group_start_failed>(end);
  EXPECT_EQ(event.attempt, 3u);
  EXPECT_EQ(event.reason, (error{ec::spawn, "Rank 1: killed"}));
}

TEST(attempt_end_test, a_start_may_fail_without_a_rank_to_blame) {
  attempt_failed x{3, false, {ec::timeout, "see https://me:hunter2@h1"}};
  auto end = end_of(x, {});
  EXPECT_EQ(end.reason, (error{ec::timeout, "see https://***@h1"}));
  EXPECT_EQ(event_of<run_events::group_start_failed>(end).reason, x.reason);
}

TEST(attempt_end_test, ranks_lost_with_their_host_are_continued) {
  for (auto started : {true, false}) {
    attempt_failed x{3,           started, {ec::stopped, "x"},
                     killed_rank, false,   "h1 left"};
    auto end = end_of(x, "Rank 1: killed");
    EXPECT_EQ(end.reason.code, ec::rank_failed);
    EXPECT_EQ(event_of<run_events::ranks_left>(end).why, "h1 left");
  }
}

TEST(attempt_end_test, a_final_failure_ends_the_run_whatever_else_it_is) {
  attempt_failed x{3,           true, {ec::spawn, "too few"},
                   killed_rank, true, "h1 left"};
  EXPECT_EQ(event_of<run_events::fatal_failure>(end_of(x, "y")).reason,
            x.reason);
}

} // namespace

} // namespace troupe::internal::test
