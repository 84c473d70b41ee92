#include "troupe/callbacks/wandb/wandb_batch.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

TEST(wandb_steps_test, uses_the_index_of_a_report_as_step) {
  wandb_steps x;
  EXPECT_EQ(x.next_report(0), 0);
  EXPECT_EQ(x.next_report(1), 1);
  EXPECT_EQ(x.next_report(7), 7);
}

TEST(wandb_steps_test, leaves_out_reports_that_a_rollback_repeats) {
  wandb_steps x;
  for (auto i : {0, 1, 2, 3})
    x.next_report(i);
  x.begin_attempt();
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

TEST(wandb_steps_test, leaves_out_logged_rows_that_a_rollback_repeats) {
  wandb_steps x;
  x.next_logged(5);
  x.next_logged(-3);
  x.begin_attempt();
  EXPECT_EQ(x.next_logged(5), std::nullopt);
  EXPECT_EQ(x.next_logged(6), 7);
  EXPECT_EQ(x.next_logged(6), 8);
}

TEST(wandb_steps_test, continues_behind_rows_written_before_a_restart) {
  wandb_steps x;
  x.next_report(0);
  x.take({.exit = false, .step = 1, .report = 1, .logged = std::nullopt});
  x.take({.exit = false, .step = 50, .report = std::nullopt, .logged = 50});
  EXPECT_EQ(x.next_report(1), std::nullopt);
  EXPECT_EQ(x.next_logged(50), std::nullopt);
  EXPECT_EQ(x.next_report(2), 51);
}

} // namespace
} // namespace troupe::internal
