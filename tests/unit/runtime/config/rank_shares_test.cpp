#include "troupe/runtime/config/rank_shares.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using testing::ElementsAre;

TEST(rank_shares_test, deals_ranks_evenly_and_the_first_hosts_have_more) {
  EXPECT_THAT(deal_ranks({4, 4, 4}, 7), ElementsAre(3, 2, 2));
  EXPECT_THAT(deal_ranks({4, 4, 4}, 2), ElementsAre(1, 1, 0));
  EXPECT_THAT(deal_ranks({1, 4, 4}, 7), ElementsAre(1, 3, 3));
  EXPECT_THAT(deal_ranks({2, 9, 3, 0, 9}, 17), ElementsAre(2, 6, 3, 0, 6));
}

TEST(rank_shares_test, deals_no_more_ranks_than_there_are_slots) {
  EXPECT_THAT(deal_ranks({1, 0}, 7), ElementsAre(1, 0));
  EXPECT_THAT(deal_ranks({}, 7), testing::IsEmpty());
  EXPECT_THAT(deal_ranks({2, 2}, 0), ElementsAre(0, 0));
}

TEST(rank_shares_test, deals_any_number_of_ranks_to_hosts_without_a_limit) {
  constexpr auto most = std::numeric_limits<int>::max();
  EXPECT_THAT(deal_ranks({most, most}, most),
              ElementsAre(most / 2 + 1, most / 2));
}

TEST(rank_shares_test, numbers_ranks_host_by_host) {
  std::vector<host_share> shares{{0, 2}, {0, 0}, {0, 3}};
  EXPECT_EQ(number_ranks(shares), 5);
  EXPECT_THAT(
    shares, ElementsAre(host_share{0, 2}, host_share{2, 0}, host_share{2, 3}));
  EXPECT_EQ(ranks_in(shares), 5);
  EXPECT_EQ(ranks_in({}), 0);
}

} // namespace
} // namespace troupe::internal
