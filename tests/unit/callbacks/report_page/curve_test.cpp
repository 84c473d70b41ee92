#include "troupe/callbacks/report_page/curve.hpp"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace troupe::internal {

namespace {

constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinity = std::numeric_limits<double>::infinity();

curve_point point(double x, double value, std::uint64_t segment = 0) {
  return point_of(x, x / 10, segment, {&value, 1});
}

} // namespace

TEST(curve_test, a_point_has_mean_and_extremes_of_all_ranks) {
  std::array values{3.0, 1.0, 8.0};
  auto x = point_of(7, 0.5, 2, values);
  EXPECT_EQ(x.mean, 4);
  EXPECT_EQ(x.min, 1);
  EXPECT_EQ(x.max, 8);
  EXPECT_EQ(x.segment, 2u);
  EXPECT_EQ(x.not_finite, 0u);
}

TEST(curve_test, values_that_are_not_finite_are_counted_and_left_out) {
  std::array some{nan, 4.0, infinity};
  auto x = point_of(0, 0, 0, some);
  EXPECT_EQ(x.mean, 4);
  EXPECT_EQ(x.max, 4);
  EXPECT_EQ(x.not_finite, 2u);
  std::array all{nan, nan};
  x = point_of(0, 0, 0, all);
  EXPECT_TRUE(std::isnan(x.mean));
  EXPECT_TRUE(std::isnan(x.min));
  EXPECT_EQ(x.valid, 0u);
}

TEST(curve_test, huge_values_have_a_finite_mean) {
  std::array values{1.7e308, 1.7e308};
  EXPECT_EQ(point_of(0, 0, 0, values).mean, 1.7e308);
  // Their difference is none.
  values[1] = -1.7e308;
  EXPECT_EQ(point_of(0, 0, 0, values).mean, 0);
  curve x;
  x.add(point(0, 1.7e308));
  x.add(point(1, -1.7e308));
  EXPECT_EQ(x.reduced(1).at(0).mean, 0);
}

TEST(curve_test, a_short_curve_keeps_every_point) {
  curve x;
  for (int i = 0; i < 1000; ++i)
    x.add(point(i, i * i));
  ASSERT_EQ(x.points().size(), 1000u);
  EXPECT_EQ(x.points()[31].mean, 961);
  EXPECT_EQ(x.total().max, 998001);
  EXPECT_EQ(x.last().x, 999);
}

TEST(curve_test, a_long_curve_stays_bounded_and_loses_no_sample) {
  curve x;
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    auto value = std::sin(i * 0.01);
    sum += value;
    x.add(point(i, value));
  }
  EXPECT_LE(x.points().size(), curve::max_points);
  EXPECT_GE(x.points().size(), curve::max_points / 4);
  double weighted = 0;
  std::uint64_t samples = 0;
  for (auto& p : x.points()) {
    weighted += p.mean * static_cast<double>(p.samples);
    samples += p.samples;
    EXPECT_LE(p.min, p.mean);
    EXPECT_GE(p.max, p.mean);
  }
  EXPECT_EQ(samples, 100'000u);
  EXPECT_NEAR(weighted, sum, 1e-6);
}

TEST(curve_test, points_of_a_long_curve_rise_in_x) {
  curve x;
  for (int i = 0; i < 12'345; ++i)
    x.add(point(i, i));
  for (std::size_t i = 1; i < x.points().size(); ++i)
    EXPECT_LT(x.points()[i - 1].x, x.points()[i].x);
  for (auto& p : x.points())
    EXPECT_NEAR(p.mean, p.x, 1e-9); // the line y = x stays one
}

TEST(curve_test, a_single_peak_survives_in_the_maximum) {
  curve x;
  for (int i = 0; i < 50'000; ++i)
    x.add(point(i, i == 31'234 ? 1e6 : 0));
  double highest = 0;
  for (auto& p : x.reduced(50))
    highest = std::max(highest, p.max);
  EXPECT_EQ(highest, 1e6);
}

TEST(curve_test, a_value_that_is_not_finite_is_remembered_by_its_point) {
  curve x;
  for (int i = 0; i < 50'000; ++i)
    x.add(point(i, i == 31'234 ? nan : 2));
  std::uint64_t found = 0;
  for (auto& p : x.points()) {
    found += p.not_finite;
    EXPECT_EQ(p.mean, 2);
  }
  EXPECT_EQ(found, 1u);
}

TEST(curve_test, points_of_two_attempts_are_not_merged) {
  curve x;
  for (int i = 0; i < 10'000; ++i)
    x.add(point(i, i < 5'001 ? 0 : 1, i < 5'001 ? 1 : 2));
  for (auto& p : x.points())
    EXPECT_EQ(p.min, p.max) << p.x;
}

TEST(curve_test, even_more_attempts_than_points_stay_bounded) {
  curve x;
  for (std::uint64_t i = 0; i < 20'000; ++i)
    x.add(point(static_cast<double>(i), 1, i));
  EXPECT_LE(x.points().size(), curve::max_points);
  EXPECT_GE(x.points().size(), curve::max_points / 4);
}

TEST(curve_test, reducing_keeps_to_the_count_and_leaves_the_curve_alone) {
  curve x;
  for (int i = 0; i < 900; ++i)
    x.add(point(i, i));
  EXPECT_LE(x.reduced(100).size(), 100u);
  EXPECT_EQ(x.reduced(1).size(), 1u);
  EXPECT_EQ(x.reduced(1)[0].samples, 900u);
  EXPECT_EQ(x.points().size(), 900u);
}

} // namespace troupe::internal
