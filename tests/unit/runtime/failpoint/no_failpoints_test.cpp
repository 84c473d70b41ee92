// `failpoint.cpp` as an installation has it: this program is started with a
// TROUPE_FAILPOINT that ends a test build.

#include <cstdlib>

#include <gtest/gtest.h>

#include "troupe/runtime/failpoint.hpp"

namespace troupe::internal::test {

static_assert(failpoint("any") == 0, "is known when it is compiled");

TEST(no_failpoints_test, cannot_be_armed) {
  ASSERT_NE(std::getenv("TROUPE_FAILPOINT"), nullptr);
  EXPECT_EQ(failpoint("here"), 0);
  auto armed = arm_failpoint("here=kill");
  ASSERT_FALSE(armed);
  EXPECT_EQ(armed.error().code, ec::unsupported);
  EXPECT_EQ(failpoint("here"), 0);
}

} // namespace troupe::internal::test
