#include "troupe/runtime/config/run_config.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;

TEST(run_config_test, a_host_that_does_not_say_has_the_grace_of_the_sender) {
  run_config x;
  x.stop_grace = 30s;
  EXPECT_EQ(host_grace(x), 30s);
  x.sender_grace = 20s;
  EXPECT_EQ(host_grace(x), 20s);
}

// Senders on other hosts may wait for a shorter time than that of the driver.
TEST(run_config_test, a_host_that_does_not_say_has_the_grace_of_a_stop) {
  run_config x;
  x.stop_grace = 30s;
  x.sender_grace = 90s;
  EXPECT_EQ(host_grace(x), 30s);
}

} // namespace
} // namespace troupe::internal
