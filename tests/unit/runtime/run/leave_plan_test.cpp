#include "troupe/runtime/run/leave_plan.hpp"

#include <gmock/gmock.h>

namespace troupe::internal {
namespace {

using leave_kind = stop_info::kind_type;
using testing::Optional;

TEST(leave_plan_test, lets_ranks_stay_without_a_reason) {
  leave_plan plan;
  EXPECT_FALSE(plan.notice_for(3));
  auto outcome = plan.outcome_of(true, 4);
  EXPECT_FALSE(outcome.preempted);
  EXPECT_EQ(outcome.left_for, "");
}

TEST(leave_plan_test, LP_1_fixes_the_last_report_with_the_first_notice) {
  leave_plan plan;
  plan.preempt("SIGTERM", 500);
  auto first = plan.notice_for(3);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->after, 3u);
  EXPECT_EQ(first->reason, "SIGTERM");
  EXPECT_EQ(first->deadline_ms, 500);
  EXPECT_EQ(first->kind, leave_kind::preempted);
  plan.ran_ahead(9);
  EXPECT_EQ(plan.notice_for(4)->after, 3u);
}

TEST(leave_plan_test, LP_1_reaches_ranks_that_are_ahead_of_their_answers) {
  leave_plan plan;
  plan.ran_ahead(7);
  plan.ran_ahead(5);
  plan.preempt("SIGTERM", 500);
  EXPECT_EQ(plan.notice_for(7)->after, 7u + 16u); // max_reports_ahead
  leave_plan other;
  other.ran_ahead(6);
  other.preempt("SIGTERM", 500);
  EXPECT_EQ(other.notice_for(7)->after, 7u) << "its answer was waited for";
}

TEST(leave_plan_test, LP_2_the_end_of_the_run_comes_before_other_reasons) {
  leave_plan plan;
  plan.continue_later("host b leaves", 100);
  EXPECT_EQ(plan.notice_for(1)->kind, leave_kind::continues);
  plan.preempt("SIGTERM", 500);
  EXPECT_EQ(plan.notice_for(1)->kind, leave_kind::preempted);
  EXPECT_EQ(plan.outcome_of(true, 2).left_for, "");
  EXPECT_TRUE(plan.outcome_of(true, 2).preempted);
  plan.train_no_more("the loss is low enough");
  auto notice = plan.notice_for(1);
  EXPECT_EQ(notice->kind, leave_kind::finished);
  EXPECT_EQ(notice->reason, "the loss is low enough");
  EXPECT_EQ(notice->deadline_ms, 0);
  EXPECT_FALSE(plan.outcome_of(true, 2).preempted);
}

TEST(leave_plan_test, LP_3_takes_the_earliest_deadline) {
  leave_plan plan;
  EXPECT_TRUE(plan.continue_later("the run grows"));
  EXPECT_FALSE(plan.continue_later("the run grows again"));
  EXPECT_TRUE(plan.continue_later("host b leaves", 900));
  EXPECT_FALSE(plan.continue_later("host c leaves", 900));
  EXPECT_TRUE(plan.continue_later("host d leaves", 100));
  EXPECT_EQ(plan.notice_for(0)->reason, "host d leaves");
  EXPECT_FALSE(plan.time_is_over(900)) << "the timer of an earlier reason";
  EXPECT_THAT(plan.time_is_over(100), Optional(std::string{"host d leaves"}));
}

TEST(leave_plan_test, continues_if_all_ranks_knew_of_it_when_they_left) {
  leave_plan plan;
  plan.continue_later("the run grows");
  EXPECT_EQ(plan.outcome_of(true, 5).left_for, "") << "they had finished";
  (void) plan.notice_for(5);
  EXPECT_EQ(plan.outcome_of(true, 5).left_for, "") << "before that report";
  EXPECT_EQ(plan.outcome_of(true, 6).left_for, "the run grows");
}

TEST(leave_plan_test, continues_for_a_host_that_left_ranks_no_more_time) {
  leave_plan plan;
  plan.preempt("SIGTERM", 500);
  plan.continue_later("host b leaves", 100);
  ASSERT_TRUE(plan.time_is_over(100));
  auto ended = plan.outcome_of(false, 2);
  EXPECT_FALSE(ended.preempted);
  EXPECT_EQ(ended.left_for, "host b leaves");
  EXPECT_EQ(plan.outcome_of(true, 2).left_for, "") << "all had returned";
}

TEST(local_deadline_test, is_as_far_away_as_on_the_other_host) {
  local_deadline deadline;
  EXPECT_EQ(deadline.of(500, 30, 7000), 7030);
}

TEST(local_deadline_test, stays_until_the_other_host_names_another) {
  local_deadline deadline;
  EXPECT_EQ(deadline.of(500, 30, 7000), 7030);
  EXPECT_EQ(deadline.of(500, 21, 7010), 7030) << "an answer that was slow";
  EXPECT_EQ(deadline.of(490, 10, 7011), 7021);
  EXPECT_EQ(deadline.of(490, -5, 7030), 7021);
}

TEST(local_deadline_test, is_far_away_if_nothing_ends_ranks) {
  local_deadline deadline;
  constexpr auto never = leave_plan::never_ms;
  EXPECT_EQ(deadline.of(never, never, 7000), never);
  EXPECT_EQ(deadline.of(500, 30, 7000), 7030);
}

} // namespace
} // namespace troupe::internal
