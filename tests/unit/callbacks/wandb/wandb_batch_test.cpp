#include "troupe/callbacks/wandb/wandb_batch.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

wandb_seen logged_row(std::int64_t step, std::int64_t logged) {
  wandb_seen result;
  result.step = step;
  result.logged = logged;
  return result;
}

TEST(wandb_steps_test, uses_the_index_of_a_report_as_step) {
  wandb_steps x;
  EXPECT_EQ(x.next_report(0), 0);
  EXPECT_EQ(x.next_report(1), 1);
  EXPECT_EQ(x.next_report(7), 7);
}

TEST(wandb_steps_test, leaves_out_reports_that_a_rollback_repeats) {
  wandb_steps x;
  x.begin_attempt(0);
  for (auto i : {0, 1, 2, 3})
    x.next_report(i);
  x.begin_attempt(1);
  EXPECT_EQ(x.next_report(2), std::nullopt);
  EXPECT_EQ(x.next_report(3), std::nullopt);
  EXPECT_EQ(x.next_report(4), 4);
}

TEST(wandb_steps_test, increases_over_reports_and_logged_rows) {
  wandb_steps x;
  EXPECT_EQ(x.next_logged(100), 100);
  EXPECT_EQ(x.next_report(0), 101);
  EXPECT_EQ(x.next_logged(101), 102);
  EXPECT_EQ(x.next_report(1), 103);
  EXPECT_EQ(x.next_logged(101), 104) << "a second row of a step is kept";
}

TEST(wandb_steps_test, keeps_logged_rows_whose_steps_begin_again) {
  wandb_steps x;
  x.begin_attempt(0);
  EXPECT_EQ(x.next_logged(5000), 5000);
  EXPECT_EQ(x.next_logged(-3), 5001);
  x.begin_attempt(1);
  EXPECT_EQ(x.next_logged(6), 5002);
  EXPECT_EQ(x.next_logged(5000), 5003);
}

TEST(wandb_steps_test, continues_behind_rows_written_before_a_restart) {
  wandb_steps x;
  x.next_report(0);
  wandb_seen report;
  report.step = report.report = 1;
  x.take(report);
  x.take(logged_row(50, 50));
  EXPECT_EQ(x.next_report(1), std::nullopt);
  EXPECT_EQ(x.next_logged(50), std::nullopt);
  EXPECT_EQ(x.next_report(2), 51);
}

TEST(wandb_steps_test, leaves_out_only_logged_rows_that_are_in_the_file) {
  wandb_steps x;
  x.begin_attempt(0);
  x.next_logged(5000);
  x.take(logged_row(5001, 5001));
  wandb_seen begun;
  begun.attempt = 1;
  x.take(begun);
  x.take(logged_row(5002, 6));
  EXPECT_EQ(x.next_logged(5001), std::nullopt);
  x.begin_attempt(1);
  EXPECT_EQ(x.next_logged(6), std::nullopt);
  EXPECT_EQ(x.next_logged(7), 5003);
  EXPECT_EQ(x.next_logged(0), 5004) << "all rows of the file were repeated";
  x.begin_attempt(2);
  EXPECT_EQ(x.next_logged(6), 5005);
}

TEST(wandb_steps_test, keeps_logged_rows_after_a_report_that_is_new) {
  wandb_steps x;
  x.begin_attempt(0);
  x.take(logged_row(5000, 5000));
  EXPECT_EQ(x.next_logged(5000), std::nullopt);
  EXPECT_EQ(x.next_report(0), 5001);
  EXPECT_EQ(x.next_logged(0), 5002) << "an epoch, after its batches";
}

} // namespace
} // namespace troupe::internal
