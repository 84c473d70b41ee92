#include "troupe/runtime/run/attempt_slot.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

struct sized_attempt : numbered_attempt {
  explicit sized_attempt(int x) : ranks(x) {}

  int ranks;
};

using sized_slot = attempt_slot<sized_attempt>;

const error end_ordered{ec::rank_failed, "rank 1 has failed"};

TEST(attempt_slot_test, takes_messages_of_the_attempt_under_way) {
  sized_slot attempt;
  EXPECT_FALSE(attempt);
  EXPECT_FALSE(attempt.is(0)) << "before the first one";
  EXPECT_EQ(attempt.begin(3, 2).number, 3u);
  ASSERT_TRUE(attempt);
  EXPECT_TRUE(attempt.is(3));
  ASSERT_NE(attempt.current(3), nullptr);
  EXPECT_EQ(attempt.current(3)->ranks, 2);
  EXPECT_EQ(attempt.open(3).value()->ranks, 2);
}

// AS-1
TEST(attempt_slot_test, drops_messages_of_other_attempts) {
  sized_slot attempt;
  attempt.begin(3, 2);
  EXPECT_EQ(attempt.current(2), nullptr);
  EXPECT_EQ(attempt.current(4), nullptr);
  EXPECT_EQ(attempt.open(2).error(), sized_slot::too_late(2));
  EXPECT_FALSE(attempt.is(2));
}

// AS-1
TEST(attempt_slot_test, drops_messages_between_attempts) {
  sized_slot attempt;
  EXPECT_EQ(attempt.current(0), nullptr) << "none has begun";
  attempt.begin(0, 2);
  attempt.reset();
  EXPECT_FALSE(attempt);
  EXPECT_EQ(attempt.current(0), nullptr);
  attempt.begin(1, 1);
  EXPECT_EQ(attempt.current(0), nullptr);
}

// AS-2
TEST(attempt_slot_test, an_attempt_that_ends_refuses_calls_and_is_current) {
  sized_slot attempt;
  attempt.begin(3, 2).end_reason = end_ordered;
  EXPECT_EQ(attempt.open(3).error(), end_ordered);
  EXPECT_NE(attempt.current(3), nullptr);
}

TEST(attempt_slot_test, an_attempt_begins_without_the_end_of_the_one_before) {
  sized_slot attempt;
  attempt.begin(3, 2).end_reason = end_ordered;
  EXPECT_FALSE(attempt.begin(4, 1).end_reason);
  EXPECT_EQ(attempt.open(4).value()->ranks, 1);
  EXPECT_EQ(attempt.current(3), nullptr);
}

TEST(attempt_slot_test, says_which_attempt_is_over) {
  EXPECT_EQ(sized_slot::too_late(7).code, ec::stopped);
  EXPECT_NE(sized_slot::too_late(7).message.find('7'), std::string::npos);
}

} // namespace
} // namespace troupe::internal
