#include "troupe/runtime/report/wait_alarm.hpp"

#include <gtest/gtest.h>

#include "tests/support/start_time.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using test::t0;

rank_wait wait_of(std::string what, wait_alarm::time_point since = t0) {
  return {std::move(what), {0, 2}, {1}, since};
}

TEST(wait_alarm_test, warns_every_thirty_seconds_and_names_the_missing_rank) {
  wait_alarm alarm{std::nullopt};
  auto wait = wait_of("report 3");
  EXPECT_FALSE(*alarm.check(wait, t0 + 29s));
  EXPECT_EQ(**alarm.check(wait, t0 + 30s),
            "report 3: rank 1 is missing for 30 s, ranks 0, 2 wait");
  EXPECT_FALSE(*alarm.check(wait, t0 + 31s));
  EXPECT_FALSE(*alarm.check(wait, t0 + 59s));
  EXPECT_TRUE(*alarm.check(wait, t0 + 61s));
  EXPECT_FALSE(*alarm.check(wait, t0 + 89s));
}

TEST(wait_alarm_test, warns_once_for_intervals_that_nobody_asked_in) {
  wait_alarm alarm{std::nullopt};
  auto wait = wait_of("report 3");
  EXPECT_TRUE(*alarm.check(wait, t0 + 100s));
  EXPECT_FALSE(*alarm.check(wait, t0 + 101s));
}

TEST(wait_alarm_test, begins_anew_with_every_wait) {
  wait_alarm alarm{std::nullopt};
  EXPECT_TRUE(*alarm.check(wait_of("report 3"), t0 + 31s));
  EXPECT_FALSE(*alarm.check(std::nullopt, t0 + 32s));
  EXPECT_FALSE(*alarm.check(wait_of("report 4", t0 + 33s), t0 + 40s));
  EXPECT_TRUE(*alarm.check(wait_of("report 4", t0 + 33s), t0 + 63s));
}

TEST(wait_alarm_test, fails_from_the_limit_on_whichever_rank_is_missing) {
  wait_alarm alarm{500ms};
  rank_wait wait{"barrier 2", {1, 2}, {0}, t0};
  EXPECT_TRUE(alarm.check(wait, t0 + 499ms));
  auto late = alarm.check(wait, t0 + 500ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ec::timeout);
  EXPECT_EQ(late.error().message,
            "barrier 2: rank 0 is missing for 500 ms, ranks 1, 2 wait");
}

TEST(wait_alarm_test, lists_many_ranks_in_short) {
  EXPECT_EQ(rank_list({4}), "rank 4");
  EXPECT_EQ(rank_list({0, 2, 5}), "ranks 0, 2, 5");
  std::vector<int> many(100);
  for (int i = 0; i < 100; ++i)
    many[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(rank_list(many), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, "
                             "13, 14, 15 and 84 more");
}

} // namespace
} // namespace troupe
