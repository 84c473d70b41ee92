#include "troupe/runtime/hosts/host_plan.hpp"

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

std::vector<planned_host> planned(const launch_environment& found, int workers,
                                  int per_host = 0) {
  auto plan = plan_hosts(found, workers, per_host);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? plan->hosts : std::vector<planned_host>{};
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

TEST(host_plan_test, a_driver_elsewhere_has_no_ranks) {
  EXPECT_THAT(planned(over_ssh({{"a", {}}, {"b", {}}}, {}), 2),
              ElementsAre(planned_host{"", 0, 0}, planned_host{"a", 0, 1},
                          planned_host{"b", 1, 1}));
}

TEST(host_plan_test, the_tasks_of_slurm_are_no_limit) {
  auto hosts = over_ssh({{"a", 1}, {"b", 1}}, 0);
  hosts.engine = launch_engine::slurm;
  EXPECT_THAT(planned(hosts, 4),
              ElementsAre(planned_host{"a", 0, 2}, planned_host{"b", 2, 2}));
}

} // namespace
} // namespace troupe::internal
