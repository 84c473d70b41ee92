// A run that has trained enough: when ranks learn of it, and how it ends.

#include "tests/actors/driver_fixture.hpp"

namespace troupe::internal::test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

using driver_stop_test = driver_test;

TEST_F(driver_stop_test, all_ranks_leave_after_the_report_that_is_enough) {
  config.stop.metrics = {{"x", 1}};
  run();
  EXPECT_FALSE(report(0)->value->stop);
  auto last = report(1);
  ASSERT_TRUE(last->value && last->value->stop);
  EXPECT_EQ(last->value->stop->kind, stop_info::kind_type::finished);
  EXPECT_EQ(last->value->stop->index, 1u);
  EXPECT_THAT(last->value->stop->reason, HasSubstr("x is 1, at least 1"));
  EXPECT_THAT(monitor->take_notes(), Contains(HasSubstr("x is 1, at least 1")));
  EXPECT_FALSE(ranks.asked_to_end(0));
  auto after = report(2); // a last checkpoint, say
  EXPECT_EQ(after->value->stop->index, 1u);
  finish();
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::finished);
  EXPECT_FALSE(x.error);
  EXPECT_THAT(x.stop_reason, HasSubstr("x is 1, at least 1"));
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "0", "1",
                                           "stop_decided", "2", "run_ended"));
  EXPECT_THAT(result::from_path(store->path())->stop_reason,
              HasSubstr("x is 1, at least 1"));
}

TEST_F(driver_stop_test, a_rank_ends_the_run_with_its_report) {
  run();
  ranks.report(0, 0);
  auto answer = system.ask<report_committed>(
    ranks.agent,
    troupe::internal::report{
      ranks.attempt, {1, 0, {}, std::nullopt, 0, "rank 1: good enough"}});
  ASSERT_TRUE(answer->value && answer->value->stop);
  EXPECT_EQ(answer->value->stop->reason, "rank 1: good enough");
  finish();
  EXPECT_EQ(outcome().stop_reason, "rank 1: good enough");
}

TEST_F(driver_stop_test, ranks_that_are_preempted_then_have_finished) {
  config.stop.reports = 1;
  config.stop_grace = ms{1000};
  run();
  report(0);
  send_anonymous(driver, preempt_run{"SIGTERM came", -1});
  system.settle();
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_FALSE(outcome().error);
}

TEST_F(driver_stop_test, a_metric_that_no_report_has_is_named_at_the_end) {
  config.stop.metrics = {{"accuracy", 0.9}};
  run();
  report(0);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_EQ(outcome().stop_reason, "");
  EXPECT_THAT(monitor->take_notes(), Contains(HasSubstr("'accuracy'")));
  EXPECT_THAT(journal_lines(),
              ElementsAre("attempt_begun", "0", "warning", "run_ended"));
}

} // namespace troupe::internal::test
