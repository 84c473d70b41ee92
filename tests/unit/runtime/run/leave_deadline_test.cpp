#include "troupe/runtime/run/leave_deadline.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using std::chrono::milliseconds;

constexpr leave_deadline::time_point start{};

TEST(leave_deadline_test, a_request_has_its_own_grace_or_the_usual_one) {
  leave_deadline deadline{milliseconds{30}, milliseconds{100}};
  deadline.ask(-1);
  EXPECT_EQ(deadline.grace(), milliseconds{30});
  deadline.ask(0);
  EXPECT_EQ(deadline.grace(), milliseconds{0});
  deadline.ask(100);
  EXPECT_EQ(deadline.grace(), milliseconds{100});
}

TEST(leave_deadline_test, no_grace_is_longer_than_the_longest) {
  leave_deadline deadline{milliseconds{300}, milliseconds{100}};
  deadline.ask(-1);
  EXPECT_EQ(deadline.grace(), milliseconds{100});
  deadline.ask(101);
  EXPECT_EQ(deadline.grace(), milliseconds{100});
}

TEST(leave_deadline_test, only_an_earlier_deadline_replaces_another) {
  leave_deadline deadline{milliseconds{30}, milliseconds{100}};
  deadline.ask(50);
  EXPECT_TRUE(deadline.set(start));
  EXPECT_FALSE(deadline.set(start));
  deadline.ask(60);
  EXPECT_FALSE(deadline.set(start));
  deadline.ask(10);
  EXPECT_FALSE(deadline.set(start + milliseconds{40}));
  EXPECT_TRUE(deadline.set(start + milliseconds{39}));
}

} // namespace
} // namespace troupe::internal
