#include "troupe/runtime/rank_logs.hpp"

#include <gtest/gtest.h>

#include <climits>

namespace troupe::internal {

TEST(rank_logs_test, knows_the_rank_of_a_log) {
  EXPECT_EQ(log_name(12), "rank_12.log");
  for (auto rank : {0, 7, 12, INT_MAX})
    EXPECT_EQ(rank_of_log(log_name(rank)), rank);
}

TEST(rank_logs_test, takes_no_other_file_for_a_log) {
  for (auto name :
       {"", "rank_", ".log", "rank_.log", "rank_x.log", "rank_-1.log",
        "rank_1.log.1", "rank_1.stacks", "rank_01.log", "1.log", "x_1.log",
        "rank_99999999999.log", "rank.1_.log"})
    EXPECT_FALSE(rank_of_log(name)) << name;
}

TEST(rank_logs_test, knows_the_rank_of_stacks) {
  EXPECT_EQ(stacks_name(12), "rank_12.stacks");
  EXPECT_EQ(rank_of_stacks("rank_12.stacks"), 12);
  for (auto name : {"rank_12.log", "rank_12.stacks.1", "rank_012.stacks"})
    EXPECT_FALSE(rank_of_stacks(name)) << name;
}

} // namespace troupe::internal
