#include "troupe/callbacks/tensorboard/sink_progress.hpp"

#include <gtest/gtest.h>

namespace troupe::internal::tensorboard {
namespace {

TEST(step_marks_test, discards_from_the_first_lost_report) {
  step_marks steps;
  steps.mark(4);
  EXPECT_EQ(steps.roll_back(4), 4);
  EXPECT_EQ(steps.roll_back(0), 0);
}

TEST(step_marks_test, keeps_what_was_logged_before_the_checkpoint) {
  step_marks steps;
  for (int i = 0; i <= 1000; ++i)
    steps.logged(i);
  steps.mark(4);
  steps.logged(1100);
  steps.mark(5);
  steps.logged(1200);
  EXPECT_EQ(steps.roll_back(4), 1001);
  steps.logged(1050);
  EXPECT_EQ(steps.roll_back(4), 1001);
}

TEST(step_marks_test, loses_nothing_if_the_checkpoint_is_unknown) {
  step_marks steps;
  steps.logged(7);
  for (std::uint64_t i = 0; i < 100; ++i)
    steps.mark(10 + i);
  EXPECT_EQ(steps.marks().size(), 16u);
  EXPECT_EQ(steps.roll_back(3), 8);
}

TEST(step_marks_test, starts_over_with_the_run) {
  step_marks steps;
  steps.logged(500);
  EXPECT_EQ(steps.roll_back(0), 0);
  EXPECT_EQ(steps.highest(), -1);
}

} // namespace
} // namespace troupe::internal::tensorboard
