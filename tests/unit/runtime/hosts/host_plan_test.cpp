#include "troupe/runtime/hosts/host_plan.hpp"

#include <limits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

launch_environment over_ssh(std::vector<host_entry> hosts,
                            std::optional<std::size_t> own) {
  launch_environment x;
  x.engine = launch_engine::ssh;
  x.hosts = std::move(hosts);
  x.host_index = own;
  return x;
}

/// The hosts of a plan whose slots do not matter.
std::vector<planned_host> planned(const launch_environment& found, int workers,
                                  int per_host = 0) {
  auto plan = plan_hosts(found, workers, per_host);
  EXPECT_TRUE(plan) << plan.error().message;
  auto result = plan ? plan->hosts : std::vector<planned_host>{};
  for (auto& host : result)
    EXPECT_EQ(std::exchange(host.slots, 0), host.ranks);
  return result;
}

TEST(host_plan_test, this_host_has_the_first_ranks) {
  EXPECT_THAT(planned(over_ssh({{"a", {}}, {"b", {}}, {"c", {}}}, 1), 5),
              ElementsAre(planned_host{"b", 0, 2}, planned_host{"a", 2, 2},
                          planned_host{"c", 4, 1}));
}

TEST(host_plan_test, no_host_has_more_ranks_than_slots) {
  auto hosts = over_ssh({{"a", 1}, {"b", {}}, {"c", 2}}, 0);
  EXPECT_THAT(planned(hosts, 6),
              ElementsAre(planned_host{"a", 0, 1}, planned_host{"b", 1, 3},
                          planned_host{"c", 4, 2}));
  auto full = plan_hosts(over_ssh({{"a", 1}, {"b", 2}}, 0), 4, 0);
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("num_workers is 4"));
  EXPECT_THAT(full.error().message, HasSubstr("a slots=1, b slots=2"));
  auto each = plan_hosts(over_ssh({{"a", 1}, {"b", 2}}, 0), 1, 2);
  ASSERT_FALSE(each);
  EXPECT_THAT(each.error().message, HasSubstr("workers_per_host is 2"));
}

TEST(host_plan_test, ranks_may_be_counted_for_each_host) {
  auto plan = plan_hosts(over_ssh({{"a", {}}, {"b", {}}}, 0), 1, 3);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->ranks, 6);
  EXPECT_EQ(plan->engine, launch_engine::ssh);
}

TEST(host_plan_test, fewer_ranks_than_hosts_use_the_first_ones) {
  EXPECT_THAT(planned(over_ssh({{"a", {}}, {"b", {}}, {"c", {}}}, 2), 2),
              ElementsAre(planned_host{"c", 0, 1}, planned_host{"a", 1, 1}));
  EXPECT_THAT(planned(over_ssh({{"a", {}}, {"b", {}}}, 1), 1), IsEmpty());
  EXPECT_THAT(planned(over_ssh({{"a", {}}}, 0), 4), IsEmpty());
}

TEST(host_plan_test, counts_hosts_without_ranks) {
  auto hosts = over_ssh({{"a", {}}, {"b", {}}, {"c", {}}}, 2);
  EXPECT_EQ(plan_hosts(hosts, 1, 0).value().unused, 2);
  EXPECT_EQ(plan_hosts(hosts, 2, 0).value().unused, 1);
  EXPECT_EQ(plan_hosts(hosts, 3, 0).value().unused, 0);
}

TEST(host_plan_test, an_elastic_run_keeps_all_hosts_with_their_slots) {
  auto plan = plan_hosts(
    over_ssh({{"a", {}}, {"b", 3}, {"c", {}}, {"d", {}}}, 0), {2, 3}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->unused, 0);
  EXPECT_EQ(plan->ranks.min, 2);
  EXPECT_EQ(plan->ranks.max, 3);
  EXPECT_THAT(plan->hosts, ElementsAre(planned_host{"a", 0, 1, 1},
                                       planned_host{"b", 1, 1, 3},
                                       planned_host{"c", 2, 1, 1},
                                       planned_host{"d", 3, 0, 1}));
}

TEST(host_plan_test, slots_beyond_what_a_host_can_have_add_up) {
  constexpr auto most = std::numeric_limits<int>::max() - 1;
  auto plan = plan_hosts(over_ssh({{"a", most}, {"b", most}}, 0), {2, 4}, 0);
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->hosts, ElementsAre(planned_host{"a", 0, 2, 1024},
                                       planned_host{"b", 2, 2, 1024}));
}

TEST(host_plan_test, a_host_without_slots_has_room_for_what_others_lack) {
  auto plan =
    plan_hosts(over_ssh({{"a", 2}, {"b", {}}, {"c", {}}}, 0), {2, 12}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->ranks.max, 12);
  EXPECT_THAT(plan->hosts, ElementsAre(planned_host{"a", 0, 2, 2},
                                       planned_host{"b", 2, 5, 5},
                                       planned_host{"c", 7, 5, 5}));
  // One that has no ranks is a spare for one.
  plan = plan_hosts(over_ssh({{"a", 1}, {"b", 1}, {"c", {}}}, 0), {1, 2}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->hosts.back(), (planned_host{"c", 2, 0, 1}));
}

TEST(host_plan_test, an_elastic_run_may_have_fewer_slots_than_its_most) {
  auto hosts = over_ssh({{"a", 1}, {"b", 2}}, 0);
  auto plan = plan_hosts(hosts, {2, 8}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->ranks.max, 3);
  auto full = plan_hosts(hosts, {4, 8}, 0);
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("num_workers is 4"));
}

TEST(host_plan_test, the_fewest_hosts_with_the_same_ranks_may_be_given) {
  auto plan =
    plan_hosts(over_ssh({{"a", {}}, {"b", {}}, {"c", {}}}, {}), 1, 2, 2);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->ranks.min, 4);
  EXPECT_EQ(plan->ranks.max, 6);
  EXPECT_THAT(plan->hosts,
              ElementsAre(planned_host{"", 0, 0, 0}, planned_host{"a", 0, 2, 2},
                          planned_host{"b", 2, 2, 2},
                          planned_host{"c", 4, 2, 2}));
}

TEST(host_plan_test, a_driver_elsewhere_has_no_ranks) {
  EXPECT_THAT(planned(over_ssh({{"a", {}}, {"b", {}}}, {}), 2),
              ElementsAre(planned_host{"", 0, 0}, planned_host{"a", 0, 1},
                          planned_host{"b", 1, 1}));
}

TEST(host_plan_test, the_tasks_of_slurm_are_not_a_limit) {
  auto hosts = over_ssh({{"a", 1}, {"b", 1}}, 0);
  hosts.engine = launch_engine::slurm;
  EXPECT_THAT(planned(hosts, 4),
              ElementsAre(planned_host{"a", 0, 2}, planned_host{"b", 2, 2}));
}

} // namespace
} // namespace troupe::internal
