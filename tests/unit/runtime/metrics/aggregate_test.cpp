#include "troupe/runtime/metrics/metrics.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

constexpr auto infinity = std::numeric_limits<double>::infinity();

using ranks = std::vector<metrics>;

TEST(aggregate_test, takes_mean_min_max_and_the_std_of_the_population) {
  auto all = aggregate(
    ranks{{{"loss", 2.0}}, {{"loss", 4}}, {{"loss", 4.0}}, {{"loss", 6.0}}});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all.at("loss"), (rank_spread{4, 2, 6, std::sqrt(2.0), 4}));
}

TEST(aggregate_test, one_rank_alone_does_not_differ) {
  EXPECT_EQ(aggregate(ranks{{{"x", -3}}}).at("x"),
            (rank_spread{-3, -3, -3, 0, 1}));
}

TEST(aggregate_test, equal_numbers_stay_what_they_are) {
  // 0.1 + 0.1 + 0.1 is more than 0.3.
  auto x = aggregate(ranks{{{"x", 0.1}}, {{"x", 0.1}}, {{"x", 0.1}}}).at("x");
  EXPECT_EQ(x, (rank_spread{0.1, 0.1, 0.1, 0, 3}));
}

TEST(aggregate_test, leaves_out_ranks_without_the_name_or_with_a_text) {
  auto all =
    aggregate(ranks{{{"x", 1}, {"host", "a"}}, {{"x", "one"}}, {}, {{"x", 3}}});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all.at("x"), (rank_spread{2, 1, 3, 1, 2}));
}

TEST(aggregate_test, counts_a_flag_as_0_or_1) {
  EXPECT_EQ(aggregate(ranks{{{"ok", true}}, {{"ok", false}}}).at("ok"),
            (rank_spread{0.5, 0, 1, 0.5, 2}));
}

TEST(aggregate_test, a_nan_cannot_hide_behind_the_other_ranks) {
  auto x = aggregate(ranks{{{"x", 1.0}}, {{"x", std::nan("")}}}).at("x");
  EXPECT_TRUE(std::isnan(x.mean));
  EXPECT_TRUE(std::isnan(x.min));
  EXPECT_TRUE(std::isnan(x.max));
  EXPECT_TRUE(std::isnan(x.std));
  EXPECT_EQ(x.count, 2u);
}

TEST(aggregate_test, an_infinity_shows_and_has_no_std) {
  auto x = aggregate(ranks{{{"x", infinity}}, {{"x", 1.0}}}).at("x");
  EXPECT_EQ(x.mean, infinity);
  EXPECT_EQ(x.min, 1);
  EXPECT_EQ(x.max, infinity);
  EXPECT_TRUE(std::isnan(x.std));
  auto both = aggregate(ranks{{{"x", infinity}}, {{"x", -infinity}}}).at("x");
  EXPECT_TRUE(std::isnan(both.mean));
  EXPECT_EQ(both.min, -infinity);
}

TEST(aggregate_test, numbers_near_the_largest_do_not_overflow) {
  auto x = aggregate(ranks{{{"x", 1.5e308}}, {{"x", 0.5e308}}}).at("x");
  EXPECT_DOUBLE_EQ(x.mean, 1e308);
  EXPECT_DOUBLE_EQ(x.std, 0.5e308);
}

TEST(aggregate_test, no_ranks_have_nothing) {
  EXPECT_TRUE(aggregate(ranks{}).empty());
}

TEST(aggregate_test, is_available_as_metrics_too) {
  EXPECT_EQ(aggregated_metrics(ranks{{{"val/loss", 1.0}}, {{"val/loss", 3.0}}}),
            (metrics{{"val/loss/mean", 2.0},
                     {"val/loss/min", 1.0},
                     {"val/loss/max", 3.0},
                     {"val/loss/std", 1.0}}));
}

} // namespace
} // namespace troupe::internal
