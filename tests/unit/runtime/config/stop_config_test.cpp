#include "troupe/runtime/config/stop_config.hpp"

#include <limits>

#include <gmock/gmock.h>

namespace troupe::internal {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr auto nan = std::numeric_limits<double>::quiet_NaN();

TEST(stop_config_test, limits_that_mean_nothing_are_refused) {
  EXPECT_TRUE(validate(stop_config{}));
  EXPECT_TRUE(validate(stop_config{.metrics = {{"x", 1}}, .reports = 1}));
  for (auto& x :
       {stop_config{.metrics = {{"", 1}}}, stop_config{.metrics = {{"x"}}},
        stop_config{.metrics = {{"x", 1, 2}}},
        stop_config{.metrics = {{"x", nan}}}, stop_config{.reports = 0},
        stop_config{.time = milliseconds{0}}}) {
    auto ok = validate(x);
    ASSERT_FALSE(ok);
    EXPECT_EQ(ok.error().code, ec::invalid_config);
    EXPECT_THAT(ok.error().message, HasSubstr("run.stop."));
  }
}

} // namespace
} // namespace troupe::internal
