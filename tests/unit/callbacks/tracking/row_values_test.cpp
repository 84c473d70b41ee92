#include "troupe/callbacks/tracking/row_values.hpp"

#include <gtest/gtest.h>

using namespace troupe;
using namespace troupe::internal;

TEST(row_values_test, shows_the_first_the_mean_or_each_rank) {
  journaled_batch row;
  row.values = {{{"loss", 1.0}, {"name", "x"}}, {{"loss", 3}, {"other", true}}};
  EXPECT_EQ(values_of(row, rank_values::first), row.values[0]);
  EXPECT_EQ(values_of(row, rank_values::mean),
            (metrics{{"loss", 2.0}, {"name", "x"}, {"other", 1.0}}));
  EXPECT_EQ(values_of(row, rank_values::each),
            (metrics{{"loss", 1.0},
                     {"name", "x"},
                     {"rank_0/loss", 1.0},
                     {"rank_0/name", "x"},
                     {"rank_1/loss", 3},
                     {"rank_1/other", true}}));
  EXPECT_TRUE(values_of({}, rank_values::mean).empty());
}
