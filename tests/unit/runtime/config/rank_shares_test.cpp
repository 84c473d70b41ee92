#include "troupe/runtime/config/rank_shares.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(rank_claim_test, a_host_has_room_for_what_its_ranks_claim) {
  rank_claim claim{.cpus = 2, .gpus = 1};
  EXPECT_EQ(claim.room_on("host a", {8, 4}, 4, 4).ranks, 4);
  EXPECT_EQ(claim.room_on("host a", {8, 4}, 4, 4).shortage, "");
  EXPECT_EQ(claim.shortage_on("host a", {7, 4}, 4),
            "4 workers ask for 8 cpus, host a has 7");
  EXPECT_EQ(claim.shortage_on("host a", {8, 3}, 4),
            "4 workers ask for 4 gpus, host a has 3");
  EXPECT_EQ(claim.shortage_on("this host", {8, 0}, 1),
            "1 worker asks for 1 gpus, this host has 0");
}

TEST(rank_claim_test, a_claim_of_nothing_fits_everywhere) {
  EXPECT_EQ(rank_claim{}.room_on("host a", {0, 0}, 9, 9).ranks, 9);
}

TEST(rank_claim_test, a_smaller_host_has_fewer_ranks_if_it_may) {
  rank_claim claim{.cpus = 1.5};
  auto room = claim.room_on("host a", {4, 0}, 4, 1);
  EXPECT_EQ(room.ranks, 2);
  EXPECT_EQ(room.shortage, "4 workers ask for 6 cpus, host a has 4");
  room = claim.room_on("host a", {4, 0}, 4, 3);
  EXPECT_EQ(room.ranks, 0);
  EXPECT_EQ(room.shortage, "3 workers ask for 4.5 cpus, host a has 4");
  room = claim.room_on("host a", {1, 0}, 4, 0);
  EXPECT_EQ(room.ranks, 0);
  EXPECT_EQ(room.shortage, "1 worker asks for 1.5 cpus, host a has 1");
}

TEST(rank_claim_test, a_gpu_is_claimed_with_use_gpu_unless_a_number_is_given) {
  scaling_config x{.use_gpu = true};
  EXPECT_EQ(claim_of(x).gpus, 1);
  EXPECT_EQ(claim_of(x).cpus, 0);
  x.resources_per_worker = {3, 2};
  EXPECT_EQ(claim_of(x).gpus, 2);
  EXPECT_EQ(claim_of(x).cpus, 3);
}

TEST(rank_claim_test, refuses_claims_that_mean_nothing) {
  auto refusal = [](const rank_claim& x) {
    auto ok = validate(x);
    return ok ? std::string{} : ok.error().message;
  };
  EXPECT_EQ(refusal({0.5, 2}), "");
  EXPECT_THAT(refusal({-1, 0}), HasSubstr("cpus must be a number >= 0"));
  EXPECT_THAT(refusal({std::numeric_limits<double>::infinity(), 0}),
              HasSubstr("cpus must be a number >= 0, got inf"));
  EXPECT_THAT(refusal({0, -1}), HasSubstr("gpus must be a number >= 0"));
  EXPECT_THAT(refusal({0, 0.5}), HasSubstr("gpus must be a whole number"));
}

} // namespace
} // namespace troupe::internal
