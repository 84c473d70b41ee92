#include <cmath>

#include <gmock/gmock.h>

#include "troupe/runtime/sweep/halving.hpp"

namespace troupe::internal::test {

namespace {

bool continues(halving& x, std::size_t trial, std::uint64_t reports,
               double value) {
  auto entry = x.judge(trial, reports, value);
  return !entry || entry->continues;
}

} // namespace

TEST(halving_test, the_best_third_continues) { // SH-1
  halving x{{.min_reports = 1, .reduction = 3}, score_order::min};
  EXPECT_TRUE(continues(x, 0, 1, 5)) << "one that comes first";
  EXPECT_FALSE(continues(x, 1, 1, 6));
  EXPECT_FALSE(continues(x, 2, 1, 7));
  EXPECT_TRUE(continues(x, 3, 1, 5.5)) << "the second best of four";
  EXPECT_FALSE(continues(x, 4, 1, 5.7));
  EXPECT_TRUE(continues(x, 5, 1, 1));
}

TEST(halving_test, more_is_better_if_the_order_says_so) {
  halving x{{.reduction = 2}, score_order::max};
  EXPECT_TRUE(continues(x, 0, 1, 5));
  EXPECT_FALSE(continues(x, 1, 1, 4));
  EXPECT_TRUE(continues(x, 2, 1, 4.5));
}

TEST(halving_test, a_trial_is_compared_once_at_each_rung) { // SH-2
  halving x{{.min_reports = 2, .reduction = 3}, score_order::min};
  EXPECT_FALSE(x.judge(0, 1, 9));
  EXPECT_EQ(x.judge(0, 2, 9), (halving::entry{0, 0, 9, true, 2}));
  EXPECT_FALSE(x.judge(0, 2, 9));
  EXPECT_FALSE(x.judge(0, 5, 9));
  EXPECT_EQ(x.judge(0, 6, 8), (halving::entry{0, 1, 8, true, 6}));
  EXPECT_EQ(x.judge(0, 100, 7)->rung, 3u) << "reports that no one judged";
  halving next{{.min_reports = 2, .reduction = 3}, score_order::min};
  EXPECT_TRUE(next.restore({0, 0, 9, true, 2}));
  EXPECT_FALSE(next.judge(0, 2, 9));
  EXPECT_FALSE(continues(next, 1, 2, 10));
}

TEST(halving_test, compares_after_equal_reports_if_its_options_have_changed) {
  halving x{{.min_reports = 3, .reduction = 3}, score_order::min};
  EXPECT_FALSE(x.restore({0, 0, 1, true, 1})) << "there is no such rung";
  EXPECT_EQ(x.restore({0, 1, 5, true, 3}), (halving::entry{0, 0, 5, true, 3}));
  EXPECT_FALSE(x.restore({1, 0, 1, true, 4}));
  EXPECT_FALSE(x.judge(1, 4, 1))
    << "it has been compared after as many"; // SH-2
  EXPECT_TRUE(x.judge(1, 9, 1));
  EXPECT_FALSE(continues(x, 2, 3, 6)) << "5 is better";
  EXPECT_TRUE(continues(x, 3, 3, 4));
  halving older{{.min_reports = 2}, score_order::min};
  EXPECT_TRUE(older.restore({0, 0, 9, true})) << "without its reports";
  EXPECT_FALSE(continues(older, 1, 2, 10));
}

TEST(halving_test, a_nan_is_worse_than_any_number) { // SH-3
  for (auto order : {score_order::min, score_order::max}) {
    halving x{{.reduction = 2}, order};
    EXPECT_TRUE(continues(x, 0, 1, std::nan("")));
    EXPECT_TRUE(continues(x, 1, 1, 1e9));
    EXPECT_TRUE(continues(x, 3, 1, 1e9));
    EXPECT_FALSE(continues(x, 2, 1, std::nan("")));
  }
}

TEST(halving_test, says_why_a_trial_ends) {
  halving x{{.min_reports = 1, .reduction = 3}, score_order::min};
  EXPECT_TRUE(continues(x, 0, 1, 5));
  auto worse = x.judge(1, 1, 6.5);
  ASSERT_TRUE(worse);
  EXPECT_EQ(x.reason_of(*worse),
            "6.5 is not among the best 1 in 3 of 2 trials that have made 1 "
            "report");
  auto later = x.judge(0, 5, 7.5); // The first with a value since the third.
  ASSERT_TRUE(later);
  EXPECT_THAT(x.reason_of(*later), testing::EndsWith("have made 3 reports"));
}

TEST(halving_test, refuses_options_that_mean_nothing) {
  EXPECT_TRUE(validate(halving_options{}));
  EXPECT_FALSE(validate(halving_options{.min_reports = 0}));
  EXPECT_FALSE(validate(halving_options{.reduction = 1}));
  EXPECT_FALSE(validate(halving_options{.min_reports = 3, .max_reports = 2}));
}

TEST(halving_test, counts_rungs_beyond_every_number_of_reports) {
  halving x{{.reduction = 10}, score_order::min};
  EXPECT_EQ(x.reports_of(3), 1000u);
  EXPECT_EQ(x.reports_of(25), x.reports_of(24));
  EXPECT_TRUE(x.judge(0, x.reports_of(25), 1));
}

} // namespace troupe::internal::test
