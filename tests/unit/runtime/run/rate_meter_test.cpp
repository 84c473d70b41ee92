#include "troupe/runtime/run/run_monitor.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;

const rate_meter::time_point begin_time{1000s};

TEST(rate_meter_test, is_zero_before_the_first_event) {
  rate_meter meter{begin_time};
  EXPECT_EQ(meter.rate(begin_time), 0);
  EXPECT_EQ(meter.rate(begin_time + 1h), 0);
}

TEST(rate_meter_test, measures_the_rate_of_steady_events) {
  rate_meter meter{begin_time};
  for (int i = 1; i <= 2000; ++i)
    meter.add(begin_time + i * 10ms); // 100/s for 20 s
  EXPECT_NEAR(meter.rate(begin_time + 20s), 100, 5);
}

TEST(rate_meter_test, divides_by_the_time_that_has_passed_at_first) {
  rate_meter meter{begin_time};
  for (int i = 1; i <= 10; ++i)
    meter.add(begin_time + i * 100ms);
  EXPECT_NEAR(meter.rate(begin_time + 1s), 10, 0.1);
}

TEST(rate_meter_test, does_not_exaggerate_a_first_burst) {
  rate_meter meter{begin_time};
  meter.add(begin_time);
  EXPECT_EQ(meter.rate(begin_time), 4); // one in a slot of 250 ms
}

TEST(rate_meter_test, forgets_a_burst_that_is_older_than_its_window) {
  rate_meter meter{begin_time};
  meter.add(begin_time + 1s, 1000);
  EXPECT_GT(meter.rate(begin_time + 5s), 100);
  EXPECT_LT(meter.rate(begin_time + 7s), 2);
  EXPECT_LT(meter.rate(begin_time + 1h), 0.01);
}

TEST(rate_meter_test, measures_events_that_are_rarer_than_its_window) {
  rate_meter meter{begin_time};
  meter.add(begin_time + 400s);
  EXPECT_DOUBLE_EQ(meter.rate(begin_time + 400s), 1.0 / 400);
  for (int i = 2; i <= 20; ++i)
    meter.add(begin_time + i * 400s);
  EXPECT_DOUBLE_EQ(meter.rate(begin_time + 8000s), 1.0 / 400);
}

} // namespace
} // namespace troupe::internal
