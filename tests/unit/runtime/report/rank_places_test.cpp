#include "troupe/runtime/report/rank_places.hpp"

#include <gmock/gmock.h>

#include "tests/support/start_time.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/process/shared_segment.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using test::t0;
using testing::ElementsAre;
using testing::IsEmpty;

/// Three ranks and what each shows.
class rank_places_test : public testing::Test {
protected:
  std::vector<rank_wait> waits() const { return waits_of(calls, ranks, loops); }

  void in_collective(int rank, std::uint64_t number) {
    auto& x = ranks[static_cast<std::size_t>(rank)];
    x.collectives = number;
    x.in_collective = moment{t0};
  }

  std::vector<rank_snapshot> ranks{
    {.rank = 0, .came_to_start = true},
    {.rank = 1, .came_to_start = true},
    {.rank = 2, .came_to_start = true},
  };
  std::vector<loop_place> loops{3};
  rank_meetings calls{3, 0};
};

TEST_F(rank_places_test, shows_what_the_shared_memory_shows) {
  auto segment = shared_segment::create(2).value();
  auto& shown = segment.rank(1);
  EXPECT_FALSE(snapshots_of(segment, 4, true)[1].in_collective);
  shown.activity.enter_collective();
  shown.activity.give_up_collective();
  shown.activity.fail_collective(collective_failure::others);
  shown.activity.left_group = 1;
  shown.activity.at_store = 7;
  auto x = snapshots_of(segment, 4, true)[1];
  EXPECT_EQ(x.rank, 5);
  EXPECT_TRUE(x.in_collective);
  EXPECT_EQ(x.collectives, 1u);
  EXPECT_TRUE(x.gave_up);
  EXPECT_TRUE(x.left_group);
  EXPECT_FALSE(has_left(x)) << "others had";
  EXPECT_TRUE(asks_driver(x));
  EXPECT_EQ(x.at_store->time.time_since_epoch().count(), 7);
}

TEST_F(rank_places_test, who_is_behind_in_a_collective_keeps_its_host_waiting) {
  auto segment = shared_segment::create(3).value();
  auto behind = [&segment](bool has_more) {
    std::vector<int> result;
    for (auto& x : snapshots_of(segment, 4, has_more))
      if (x.is_behind)
        result.push_back(x.rank);
    return result;
  };
  for (int rank = 0; rank < 3; ++rank)
    segment.rank(rank).activity.enter_collective();
  segment.rank(2).activity.enter_collective();
  EXPECT_THAT(behind(false), IsEmpty()) << "as over Gloo";
  for (int rank = 0; rank < 3; ++rank)
    segment.rank(rank).advance();
  segment.rank(2).advance();
  EXPECT_THAT(behind(false), ElementsAre(4, 5));
  EXPECT_THAT(behind(true), ElementsAre(5)) << "4 may wait for another host";
  segment.rank(1).activity.leave_collective();
  EXPECT_THAT(behind(true), IsEmpty()) << "it has not come to the next";
  segment.rank(1).activity.enter_collective();
  segment.rank(1).advance();
  EXPECT_THAT(behind(true), IsEmpty()) << "no rank has got further";
  segment.rank(2).activity.leave_collective();
  EXPECT_THAT(behind(true), ElementsAre(5)) << "another is through";
}

TEST_F(rank_places_test, names_who_is_missing_in_a_collective) {
  in_collective(0, 4);
  in_collective(2, 4);
  ranks[1].collectives = 3;
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_EQ(waits()[0].what, "collective 4");
  EXPECT_THAT(waits()[0].missing, ElementsAre(1));
  EXPECT_THAT(late_in_collectives(ranks, 0), ElementsAre(1));
  EXPECT_THAT(late_in_collectives(ranks, 1), IsEmpty());
}

TEST_F(rank_places_test, names_who_is_stopped_while_all_are_in_a_collective) {
  for (int rank : {0, 1, 2})
    in_collective(rank, 4);
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_THAT(waits()[0].missing, IsEmpty());
  loops[1].stopped = t0;
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_EQ(waits()[0].what, "collective 4");
  EXPECT_THAT(waits()[0].missing, ElementsAre(1));
}

TEST_F(rank_places_test, a_rank_that_no_one_is_late_for_waits_for_data) {
  in_collective(0, 4);
  ranks[1].collectives = 4;
  ranks[2].collectives = 3;
  EXPECT_FALSE(waits_for_data(ranks, 0)) << "it waits for rank 2";
  EXPECT_FALSE(waits_for_data(ranks, 1)) << "it does not wait";
  in_collective(2, 3);
  EXPECT_TRUE(waits_for_data(ranks, 0)) << "rank 2 waits, too";
  ranks[2].collectives = 4;
  EXPECT_TRUE(waits_for_data(ranks, 0));
  ranks[2].is_behind = true;
  EXPECT_FALSE(waits_for_data(ranks, 0)) << "it waits for rank 2";
  EXPECT_FALSE(waits_for_data(ranks, 2)) << "others wait for it";
}

TEST_F(rank_places_test, does_not_blame_a_rank_that_waits_for_the_driver) {
  ASSERT_TRUE(calls.add({.rank = 0, .index = 0}, true, t0));
  ranks[1].at_store = moment{t0};
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_THAT(waits()[0].missing, ElementsAre(2));
}

TEST_F(rank_places_test, names_gpus_only_where_no_other_wait_does) {
  ranks[0].at_device = moment{t0};
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_EQ(waits()[0].what, "work on the GPUs");
  ASSERT_TRUE(calls.add({.rank = 1, .index = 0}, true, t0));
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_EQ(waits()[0].what, "report 0");
}

TEST_F(rank_places_test, a_failed_collective_is_waited_in_no_longer) {
  ranks[0].called = ranks[0].awaited = 2;
  EXPECT_EQ(collective_calls_of(ranks[0]).awaited, 2u);
  ranks[0].failed = collective_failure::own;
  EXPECT_EQ(collective_calls_of(ranks[0]).awaited, 0u);
}

TEST_F(rank_places_test, says_where_a_rank_is) {
  auto& x = ranks[0];
  EXPECT_EQ(place_of(x, "", t0), "in its train loop");
  in_collective(0, 3);
  EXPECT_EQ(place_of(x, "", t0 + 5s), "in collective 3 for 5 s");
  x.in_data_loader = moment{t0};
  EXPECT_EQ(place_of(x, "", t0 + 5s), "in its data loader for 5 s");
  EXPECT_EQ(place_of(x, "report 3", t0), "in report 3");
}

TEST_F(rank_places_test, a_pass_has_a_pace_once_a_batch_is_done) {
  auto& pass = ranks[0].pass;
  pass = {2, 5, 1, {t0}};
  EXPECT_FALSE(progress_of(ranks[0], t0 + 1s));
  pass.taken = 3;
  EXPECT_EQ(progress_of(ranks[0], t0 + 4s), (epoch_progress{2, 2, 5, 6}));
}

TEST_F(rank_places_test, travels_with_ages_for_times) {
  auto& sent = ranks[2];
  auto now = moment::clock::now();
  sent.at_start = moment{now - 1h};
  sent.failed = collective_failure::own;
  sent.vitals = process_vitals{5ms, 6, 7, true, false};
  caf::byte_buffer bytes;
  auto sink = serializer_to(bytes);
  ASSERT_TRUE(sink.apply(sent));
  rank_snapshot x;
  auto source = deserializer_of(bytes);
  ASSERT_TRUE(source.apply(x));
  EXPECT_EQ(x.rank, 2);
  EXPECT_EQ(x.failed, collective_failure::own);
  EXPECT_FALSE(x.at_store);
  ASSERT_TRUE(x.at_start && x.vitals);
  EXPECT_GE(x.at_start->time, sent.at_start->time);
  EXPECT_EQ(x.vitals->cpu, 5ms);
  EXPECT_TRUE(x.vitals->stopped);
}

} // namespace
} // namespace troupe::internal
