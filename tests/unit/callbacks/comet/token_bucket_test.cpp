#include "troupe/callbacks/comet/token_bucket.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

TEST(token_bucket_test, allows_a_burst_and_then_the_rate) {
  token_bucket x{240};
  auto now = token_bucket::clock::time_point{} + 1h;
  for (int i = 0; i < 60; ++i)
    EXPECT_TRUE(x.take(now)) << i;
  EXPECT_FALSE(x.take(now));
  EXPECT_FALSE(x.take(now + 200ms));
  EXPECT_TRUE(x.take(now + 250ms));
  EXPECT_FALSE(x.take(now + 250ms));
  EXPECT_NEAR(x.available(now + 1h), 60, 1e-9);
}

TEST(token_bucket_test, tells_when_to_come_again) {
  token_bucket x{240};
  auto now = token_bucket::clock::time_point{} + 1h;
  while (x.take(now)) {
  }
  EXPECT_EQ(x.until(1), 1s);
  EXPECT_EQ(x.until(20), 5s);
  EXPECT_EQ(x.until(1000), 15s) << "not more than fit at once";
}

} // namespace
} // namespace troupe
