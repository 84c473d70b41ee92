#include "troupe/callbacks/tracking/tracker.hpp"

#include <gtest/gtest.h>

using namespace troupe;
using namespace troupe::internal;
using std::chrono::milliseconds;

TEST(backoff_test, doubles_up_to_its_limit_with_jitter) {
  backoff x{{milliseconds{100}, milliseconds{1000}}, 1};
  milliseconds bound{100};
  for (int i = 0; i < 20; ++i) {
    auto wait = x.next();
    EXPECT_GE(wait, bound / 2);
    EXPECT_LE(wait, bound);
    bound = std::min(bound * 2, milliseconds{1000});
  }
  x.reset();
  EXPECT_LE(x.next(), milliseconds{100});
}

TEST(backoff_test, honors_what_a_service_asks_for_within_limits) {
  backoff x{{}, 1};
  EXPECT_EQ(x.next(milliseconds{90'000}), milliseconds{90'000});
  EXPECT_EQ(x.next(std::chrono::hours{24}), milliseconds{600'000});
}
