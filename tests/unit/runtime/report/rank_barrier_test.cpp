#include "troupe/runtime/report/rank_meetings.hpp"

#include <gmock/gmock.h>

#include "tests/support/start_time.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using test::t0;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto barrier = meeting_kind::barrier;
constexpr auto broadcast = meeting_kind::broadcast;

auto arrive(rank_barrier& group, int rank, std::uint64_t sequence,
            meeting_kind kind, std::string payload,
            rank_barrier::time_point now) {
  return group.arrive({rank, sequence, kind, std::move(payload), {}}, now);
}

TEST(rank_barrier_test, SYNC_1_every_number_of_ranks_gets_the_data_of_rank_0) {
  for (int world_size : {1, 10, 1000}) {
    rank_barrier group{world_size};
    for (std::uint64_t call = 0; call < 2; ++call) {
      for (int rank = world_size - 1; rank > 0; --rank)
        ASSERT_FALSE(*arrive(group, rank, call, broadcast, "ignored", t0));
      auto data = *arrive(group, 0, call, broadcast, "data", t0);
      ASSERT_TRUE(data);
      EXPECT_EQ(data->payload, "data");
      EXPECT_FALSE(group.waiting());
    }
  }
}

TEST(rank_barrier_test, a_barrier_after_a_broadcast_carries_nothing) {
  rank_barrier group{1};
  EXPECT_EQ((*arrive(group, 0, 0, broadcast, "data", t0))->payload, "data");
  EXPECT_EQ((*arrive(group, 0, 1, barrier, "junk", t0))->payload, "");
  EXPECT_EQ((*arrive(group, 0, 2, broadcast, "", t0))->payload, "");
}

TEST(rank_barrier_test, SYNC_3_waits_until_the_last_rank_is_here) {
  rank_barrier group{3};
  EXPECT_FALSE(*arrive(group, 2, 0, barrier, "", t0 + 1s));
  EXPECT_FALSE(*arrive(group, 0, 0, barrier, "", t0 + 2s));
  auto wait = group.waiting();
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->what, "barrier 0");
  EXPECT_THAT(wait->waiting, ElementsAre(0, 2));
  EXPECT_THAT(wait->missing, ElementsAre(1));
  EXPECT_EQ(wait->since, t0 + 1s);
  EXPECT_TRUE(*arrive(group, 1, 0, barrier, "", t0 + 3s));
  EXPECT_FALSE(group.waiting());
}

TEST(rank_barrier_test,
     SYNC_4_refuses_an_unknown_rank_and_the_others_continue) {
  rank_barrier group{2};
  EXPECT_FALSE(*arrive(group, 0, 0, barrier, "", t0));
  EXPECT_EQ(arrive(group, 2, 0, barrier, "", t0).error().code, ec::protocol);
  EXPECT_EQ(arrive(group, -1, 0, barrier, "", t0).error().code, ec::protocol);
  EXPECT_TRUE(*arrive(group, 1, 0, barrier, "", t0));
}

TEST(rank_barrier_test, SYNC_6_a_fast_rank_cannot_join_the_call_it_has_left) {
  rank_barrier group{2};
  EXPECT_FALSE(*arrive(group, 0, 0, barrier, "", t0));
  auto twice = arrive(group, 0, 0, barrier, "", t0);
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr("while it waits in 0"));
  EXPECT_TRUE(*arrive(group, 1, 0, barrier, "", t0));
  auto old = arrive(group, 0, 0, barrier, "", t0);
  ASSERT_FALSE(old);
  EXPECT_THAT(old.error().message,
              HasSubstr("rank 0 joins barrier 0 instead of 1"));
}

TEST(rank_barrier_test, SYNC_6_mixed_calls_are_an_error_that_names_the_ranks) {
  rank_barrier group{4};
  EXPECT_FALSE(*arrive(group, 0, 0, barrier, "", t0));
  EXPECT_FALSE(*arrive(group, 3, 0, barrier, "", t0));
  auto mixed = arrive(group, 1, 0, broadcast, "", t0);
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code, ec::conflict);
  EXPECT_THAT(mixed.error().message,
              HasSubstr("ranks 0, 3 in barrier 0, rank 1 in broadcast 0"));
}

TEST(rank_barrier_test, a_broadcast_that_rank_0_refuses_fails_for_all_alike) {
  rank_barrier group{2};
  EXPECT_FALSE(*arrive(group, 1, 0, broadcast, "", t0));
  auto release = *group.arrive(
    {0, 0, broadcast, {}, {ec::invalid_argument, "too large"}}, t0);
  ASSERT_TRUE(release);
  EXPECT_EQ(release->refusal, (error{ec::invalid_argument,
                                     "rank 0 refused broadcast 0: too large"}));
  // All are in step: the next one works.
  EXPECT_FALSE(*arrive(group, 1, 1, broadcast, "", t0));
  auto next = *arrive(group, 0, 1, broadcast, "data", t0);
  EXPECT_FALSE(next->refusal);
  EXPECT_EQ(next->payload, "data");
}

TEST(rank_barrier_test, names_ranks_whose_loops_ended_while_others_wait) {
  rank_barrier group{3};
  EXPECT_FALSE(*arrive(group, 0, 0, barrier, "", t0));
  auto ended = group.loop_ended(1);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ec::rank_failed);
  EXPECT_EQ(ended.error().message,
            "rank 1 ended its loop, rank 0 waits in barrier 0");
}

TEST(rank_barrier_test, names_ended_ranks_when_others_come_later) {
  rank_barrier group{3};
  EXPECT_TRUE(group.loop_ended(1));
  EXPECT_TRUE(group.loop_ended(2));
  auto late = arrive(group, 0, 0, broadcast, "x", t0);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message,
            "ranks 1, 2 ended their loops, rank 0 waits in broadcast 0");
  EXPECT_FALSE(arrive(group, 1, 0, barrier, "", t0));
  EXPECT_FALSE(group.loop_ended(3));
}

} // namespace
} // namespace troupe::internal
