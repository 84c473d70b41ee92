#include "troupe/runtime/hosts/world_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/hosts/resize_judge.hpp"

namespace troupe::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(world_plan_test, all_hosts_have_the_largest_world) {
  EXPECT_THAT(
    plan_world({{0, 2}, {1, 2}, {2, 2}}, {2, 6}, 3),
    ElementsAre(host_share{0, 2}, host_share{2, 2}, host_share{4, 2}));
}

TEST(world_plan_test, a_world_without_a_host_is_smaller) {
  auto shares = plan_world({{0, 2}, {2, 2}}, {2, 6}, 3);
  EXPECT_THAT(
    shares, ElementsAre(host_share{0, 2}, host_share{2, 0}, host_share{2, 2}));
  EXPECT_EQ(ranks_in(shares), 4);
}

TEST(world_plan_test, more_slots_than_ranks_leave_hosts_out) {
  EXPECT_EQ(ranks_in(plan_world({{0, 1}, {1, 1}, {2, 1}}, {1, 2}, 3)), 2);
}

TEST(world_plan_test, too_few_slots_make_no_world) {
  EXPECT_THAT(plan_world({{0, 2}}, {3, 6}, 3), IsEmpty());
  EXPECT_THAT(plan_world({}, {1, 6}, 3), IsEmpty());
}

TEST(world_plan_test, each_host_may_have_the_same_number_of_ranks) {
  world_range range{2, 5, 2};
  EXPECT_THAT(plan_world({{0, 4}, {1, 1}, {2, 4}, {3, 4}}, range, 4),
              ElementsAre(host_share{0, 2}, host_share{2, 0}, host_share{2, 2},
                          host_share{4, 0}));
}

TEST(world_plan_test, the_last_hosts_have_what_the_others_leave) {
  EXPECT_THAT(
    plan_world({{0, 2}, {1, 2, true}, {2, 2}}, {2, 4}, 3),
    ElementsAre(host_share{0, 2}, host_share{2, 0}, host_share{2, 2}));
  EXPECT_THAT(
    plan_world({{0, 2}, {1, 2, true}, {2, 2}}, {2, 5}, 3),
    ElementsAre(host_share{0, 2}, host_share{2, 1}, host_share{3, 2}));
  world_range same_on_each{2, 4, 2};
  EXPECT_THAT(
    plan_world({{0, 4}, {1, 4, true}, {2, 4}}, same_on_each, 3),
    ElementsAre(host_share{0, 2}, host_share{2, 0}, host_share{2, 2}));
}

TEST(world_plan_test, a_driver_without_ranks_gets_none) {
  EXPECT_THAT(plan_world({{0, 0}, {1, 2}}, {1, 2}, 2),
              ElementsAre(host_share{0, 0}, host_share{0, 2}));
}

TEST(resize_judge_test, a_run_grows_with_a_checkpoint_if_it_can) {
  resize_judge judge{resize_policy::next_checkpoint};
  judge.attempt_began(4);
  EXPECT_FALSE(judge.reported(true));
  judge.hosts_changed(6);
  EXPECT_FALSE(judge.reported(false));
  EXPECT_EQ(judge.reported(true), "the run grows from 4 to 6 ranks");
}

TEST(resize_judge_test, a_run_may_grow_with_any_report_or_never) {
  resize_judge soon{resize_policy::at_once};
  resize_judge never{resize_policy::never};
  for (auto* judge : {&soon, &never}) {
    judge->attempt_began(4);
    judge->hosts_changed(6);
  }
  EXPECT_TRUE(soon.reported(false));
  EXPECT_FALSE(never.reported(true));
}

TEST(resize_judge_test, a_host_that_has_gone_again_changes_nothing) {
  resize_judge judge{resize_policy::at_once};
  judge.attempt_began(4);
  judge.hosts_changed(6);
  judge.hosts_changed(4);
  EXPECT_FALSE(judge.reported(true));
  judge.hosts_changed(2); // One that serves has gone: the attempt ends anyway.
  EXPECT_FALSE(judge.reported(true));
}

} // namespace
} // namespace troupe::internal
