#include "troupe/runtime/run/failure_policy.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using std::chrono::milliseconds;

const error start_error{ec::timeout, "rank 1 did not start within 60 s"};

double no_jitter() {
  return 0;
}

TEST(failure_policy_test, FP_1_a_limit_of_n_allows_n_restarts) {
  failure_policy policy{{.max_failures = 3}};
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(policy.on_ranks_failed());
  EXPECT_FALSE(policy.on_ranks_failed());
  EXPECT_EQ(policy.counts().ranks, 4);
}

TEST(failure_policy_test, FP_2_a_limit_of_minus_one_always_restarts) {
  failure_policy policy{{.max_failures = -1, .controller_failure_limit = -1}};
  for (int i = 0; i < 5000; ++i) {
    ASSERT_TRUE(policy.on_ranks_failed());
    ASSERT_TRUE(policy.on_start_failed(start_error));
  }
}

TEST(failure_policy_test, FP_3_a_limit_of_zero_ends_the_run_at_once) {
  failure_policy policy{{.max_failures = 0, .controller_failure_limit = 0}};
  EXPECT_FALSE(policy.on_ranks_failed());
  EXPECT_FALSE(policy.on_start_failed(start_error));
}

TEST(failure_policy_test, FP_4_start_failures_have_a_budget_of_their_own) {
  failure_policy policy{{.max_failures = 1, .controller_failure_limit = 2}};
  EXPECT_TRUE(policy.on_start_failed(start_error));
  EXPECT_TRUE(policy.on_ranks_failed());
  EXPECT_TRUE(policy.on_start_failed(start_error));
  EXPECT_FALSE(policy.on_start_failed(start_error));
  EXPECT_FALSE(policy.on_ranks_failed());
  EXPECT_EQ(policy.counts().starts, 3);
  EXPECT_EQ(policy.counts().ranks, 2);
}

TEST(failure_policy_test, FP_5_a_start_that_can_never_work_is_not_repeated) {
  for (auto code : {ec::invalid_config, ec::unsupported, ec::conflict,
                    ec::not_initialized, ec::corrupt}) {
    failure_policy policy{{.controller_failure_limit = -1}};
    EXPECT_FALSE(policy.on_start_failed({code, "never"})) << to_string(code);
  }
}

TEST(failure_policy_test, the_first_failure_after_a_report_waits_for_nothing) {
  failure_policy policy{{.max_failures = -1}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(policy.on_ranks_failed(), milliseconds{0});
    EXPECT_GT(policy.on_ranks_failed(), milliseconds{0});
    EXPECT_EQ(policy.failures_in_a_row(), 2);
    policy.on_progress();
    EXPECT_EQ(policy.failures_in_a_row(), 0);
  }
  EXPECT_EQ(policy.counts().ranks, 6);
}

TEST(failure_policy_test, waits_longer_after_each_failure_without_a_report) {
  failure_policy policy{{.max_failures = -1}, no_jitter};
  for (auto expected :
       {0, 100, 200, 400, 800, 1600, 3200, 6400, 10'000, 10'000})
    EXPECT_EQ(policy.on_ranks_failed(), milliseconds{expected});
}

TEST(failure_policy_test, ranks_that_leave_are_free_ten_times_in_a_row) {
  failure_policy policy{{.max_failures = 1}, no_jitter};
  for (auto expected :
       {0, 100, 200, 400, 800, 1600, 3200, 6400, 10'000, 10'000})
    EXPECT_EQ(policy.on_ranks_left(), milliseconds{expected});
  EXPECT_EQ(policy.counts().ranks, 0);
  EXPECT_TRUE(policy.on_ranks_left());
  EXPECT_EQ(policy.counts().ranks, 1);
  EXPECT_FALSE(policy.on_ranks_left());
}

TEST(failure_policy_test, ranks_that_leave_after_a_report_wait_for_nothing) {
  failure_policy policy{{.max_failures = 0}};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.on_ranks_left(), milliseconds{0});
    policy.on_progress();
  }
  EXPECT_EQ(policy.counts().ranks, 0);
}

TEST(failure_policy_test, ranks_that_leave_and_fail_in_turn_wait_longer) {
  failure_policy policy{{.max_failures = -1}, no_jitter};
  EXPECT_EQ(policy.on_ranks_left(), milliseconds{0});
  EXPECT_EQ(policy.on_ranks_failed(), milliseconds{100});
  EXPECT_EQ(policy.on_ranks_left(), milliseconds{200});
}

TEST(failure_policy_test,
     a_successful_start_does_not_count_as_progress_of_ranks) {
  failure_policy policy{{.max_failures = -1}, no_jitter};
  EXPECT_TRUE(policy.on_ranks_failed());
  policy.on_group_started();
  EXPECT_EQ(policy.on_ranks_failed(), failure_policy::delay.first);
}

TEST(failure_policy_test, jitter_takes_up_to_a_half_of_a_wait) {
  failure_policy policy{{.max_failures = -1}, [] { return 0.5; }};
  EXPECT_EQ(policy.on_ranks_failed(), milliseconds{0});
  EXPECT_EQ(policy.on_ranks_failed(), milliseconds{75});
  EXPECT_EQ(policy.on_ranks_failed(), milliseconds{150});
  failure_policy other{{.max_failures = -1}};
  EXPECT_TRUE(other.on_ranks_failed());
  auto delay = *other.on_ranks_failed();
  EXPECT_GE(delay, failure_policy::delay.first / 2);
  EXPECT_LE(delay, failure_policy::delay.first);
}

TEST(failure_policy_test, waits_longer_after_each_failed_start_up_to_a_limit) {
  failure_policy policy{{.controller_failure_limit = -1}};
  for (auto expected : {100, 200, 400, 800, 1600, 3200, 6400, 10'000, 10'000})
    EXPECT_EQ(policy.on_start_failed(start_error), milliseconds{expected});
}

TEST(failure_policy_test, a_started_group_resets_the_wait_but_no_counter) {
  failure_policy policy{{.controller_failure_limit = 3}};
  EXPECT_TRUE(policy.on_start_failed(start_error));
  EXPECT_TRUE(policy.on_start_failed(start_error));
  policy.on_group_started();
  EXPECT_EQ(policy.on_start_failed(start_error), failure_policy::delay.first);
  EXPECT_FALSE(policy.on_start_failed(start_error));
}

} // namespace
} // namespace troupe::internal
