#include "troupe/runtime/run/run_ending.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using step = run_ending::step;

TEST(run_ending_test, waits_for_callbacks_before_and_after_the_end_is_stored) {
  run_ending ending;
  EXPECT_EQ(ending.next(0), step::wait);
  EXPECT_FALSE(ending.has_begun());
  EXPECT_TRUE(ending.begin(false));
  EXPECT_TRUE(ending.has_begun());
  EXPECT_EQ(ending.next(2), step::wait);
  EXPECT_FALSE(ending.is_storing());
  EXPECT_EQ(ending.next(0), step::store);
  EXPECT_TRUE(ending.is_storing());
  EXPECT_EQ(ending.next(0), step::wait);
  ending.stored();
  EXPECT_EQ(ending.next(1), step::wait);
  EXPECT_EQ(ending.next(0), step::quit);
}

TEST(run_ending_test, stores_the_end_at_once_if_the_run_may_be_killed) {
  run_ending ending;
  EXPECT_TRUE(ending.begin(true));
  EXPECT_EQ(ending.next(2), step::store);
  EXPECT_EQ(ending.next(2), step::wait);
  ending.stored();
  EXPECT_EQ(ending.next(2), step::wait);
  EXPECT_EQ(ending.next(0), step::quit);
}

TEST(run_ending_test, begins_once) {
  run_ending ending;
  EXPECT_TRUE(ending.begin(false));
  EXPECT_FALSE(ending.begin(true));
  EXPECT_EQ(ending.next(1), step::wait);
}

} // namespace
} // namespace troupe::internal
