#include "troupe/runtime/report/straggler_monitor.hpp"

#include <gmock/gmock.h>

namespace troupe::internal {
namespace {

using testing::HasSubstr;

/// How many of *steps* steps a monitor needs until it names someone; 0: more.
int steps_until_named(straggler_monitor& monitor,
                      const std::vector<double>& seconds, int steps) {
  for (int i = 1; i <= steps; ++i)
    if (monitor.stepped(seconds))
      return i;
  return 0;
}

TEST(straggler_monitor_test, names_a_slow_rank_within_ten_steps) {
  straggler_monitor monitor{4};
  std::vector<double> seconds{0.1, 0.11, 1.0, 0.09};
  for (int i = 0; i < 7; ++i)
    EXPECT_FALSE(monitor.stepped(seconds));
  auto text = monitor.stepped(seconds);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "rank 2 is slower than the others: 1 s for a step, 8 times "
                   "in a row, the median of the others is 0.1 s");
}

TEST(straggler_monitor_test, names_it_once) {
  straggler_monitor monitor{3};
  EXPECT_EQ(steps_until_named(monitor, {0.1, 0.1, 0.5}, 100), 8);
  EXPECT_EQ(steps_until_named(monitor, {0.1, 0.1, 0.5}, 1000), 0);
}

TEST(straggler_monitor_test, names_it_again_when_it_had_recovered) {
  straggler_monitor monitor{3};
  EXPECT_EQ(steps_until_named(monitor, {0.1, 0.1, 0.5}, 100), 8);
  EXPECT_EQ(steps_until_named(monitor, {0.1, 0.1, 0.1}, 7), 0);
  EXPECT_EQ(steps_until_named(monitor, {0.1, 0.1, 0.5}, 100), 0);
  EXPECT_EQ(steps_until_named(monitor, {0.1, 0.1, 0.1}, 8), 0);
  EXPECT_EQ(steps_until_named(monitor, {0.1, 0.1, 0.5}, 100), 8);
}

TEST(straggler_monitor_test,
     an_occasional_slow_step_does_not_make_a_straggler) {
  straggler_monitor monitor{2};
  for (int i = 0; i < 1000; ++i)
    EXPECT_FALSE(monitor.stepped({0.1, i % 8 == 0 ? 0.1 : 2.0}));
}

TEST(straggler_monitor_test, the_slower_of_two_is_named) {
  straggler_monitor monitor{2};
  EXPECT_EQ(steps_until_named(monitor, {0.1, 0.05}, 100), 8);
  straggler_monitor other{2};
  std::optional<std::string> text;
  for (int i = 0; i < 8; ++i)
    text = other.stepped({0.1, 0.05});
  EXPECT_THAT(text.value(), HasSubstr("rank 0 is slower"));
}

TEST(straggler_monitor_test, half_of_the_ranks_may_be_slow) {
  straggler_monitor monitor{5};
  std::optional<std::string> text;
  for (int i = 0; i < 8; ++i)
    text = monitor.stepped({0.5, 0.1, 0.5, 0.1, 0.1});
  EXPECT_THAT(text.value(), HasSubstr("rank 0 is"));
  EXPECT_THAT(text.value(), HasSubstr("rank 2 is"));
}

TEST(straggler_monitor_test, differences_of_short_steps_are_noise) {
  straggler_monitor monitor{2};
  EXPECT_EQ(steps_until_named(monitor, {0.001, 0.004}, 1000), 0);
}

TEST(straggler_monitor_test, a_world_of_one_has_no_others) {
  straggler_monitor monitor{1};
  EXPECT_EQ(steps_until_named(monitor, {100}, 100), 0);
}

} // namespace
} // namespace troupe::internal
