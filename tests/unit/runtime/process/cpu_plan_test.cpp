#include "troupe/runtime/process/cpu_plan.hpp"

#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace troupe;
using namespace troupe::internal;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

namespace {

/// All of *numbers*.
usable_cores cores(std::vector<int> numbers) {
  auto count = static_cast<int>(numbers.size());
  return {std::move(numbers), count};
}

bool nothing_set(const char*) {
  return false;
}

} // namespace

TEST(cpu_plan_test, gives_every_rank_cores_of_its_own) {
  auto plan = plan_cpus(cores({7, 0, 1, 2, 6}), 2);
  EXPECT_THAT(plan.cores, ElementsAre(ElementsAre(0, 1, 2), ElementsAre(6, 7)));
  EXPECT_EQ(plan.threads_per_rank, 2);
  EXPECT_FALSE(plan.oversubscribed);
}

TEST(cpu_plan_test, pins_no_rank_if_there_are_fewer_cores_than_ranks) {
  auto plan = plan_cpus(cores({0, 1}), 3);
  EXPECT_THAT(plan.cores, ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_EQ(plan.threads_per_rank, 1);
  EXPECT_TRUE(plan.oversubscribed);
}

TEST(cpu_plan_test, gives_a_lone_rank_everything) {
  auto plan = plan_cpus(cores({0, 1, 2}), 1);
  EXPECT_THAT(plan.cores, ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_EQ(plan.threads_per_rank, 3);
}

TEST(cpu_plan_test, lets_waiting_threads_sleep_when_cores_are_shared) {
  EXPECT_THAT(
    openmp_environment(plan_cpus(cores({0, 1, 2, 3}), 2), nothing_set),
    ElementsAre(Pair("OMP_NUM_THREADS", "2")));
  EXPECT_THAT(openmp_environment(plan_cpus(cores({0}), 2), nothing_set),
              ElementsAre(Pair("OMP_NUM_THREADS", "1"),
                          Pair("OMP_WAIT_POLICY", "passive"),
                          Pair("GOMP_SPINCOUNT", "0")));
}

TEST(cpu_plan_test, leaves_alone_what_the_user_has_set) {
  auto user_set = [](const char* name) {
    return std::string_view{name} == "OMP_NUM_THREADS";
  };
  EXPECT_THAT(openmp_environment(plan_cpus(cores({0, 1}), 2), user_set),
              IsEmpty());
}

TEST(cpu_plan_test, pins_no_rank_under_a_quota_below_the_cores) {
  auto plan = plan_cpus({{0, 1, 2, 3, 4, 5, 6, 7}, 5}, 2);
  EXPECT_THAT(plan.cores, ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_EQ(plan.threads_per_rank, 2);
  EXPECT_FALSE(plan.oversubscribed);
  EXPECT_TRUE(plan_cpus({{0, 1, 2, 3}, 1}, 2).oversubscribed);
}

TEST(cpu_plan_test, divides_cores_among_runs_at_once_and_pins_no_rank) {
  auto plan = plan_cpus(cores({0, 1, 2, 3, 4, 5, 6, 7}), 2, 2);
  EXPECT_THAT(plan.cores, ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_EQ(plan.threads_per_rank, 2);
  EXPECT_FALSE(plan.oversubscribed);
  plan = plan_cpus(cores({0, 1, 2, 3}), 2, 3);
  EXPECT_EQ(plan.threads_per_rank, 1);
  EXPECT_TRUE(plan.oversubscribed) << "6 ranks on 4 cores";
}

TEST(cpu_plan_test, a_part_of_shared_cores_is_only_a_number) {
  usable_cores own{{0, 1, 2, 3}, 4};
  auto part = own.part({2, 3});
  EXPECT_THAT(part.numbers, ElementsAre(2, 3));
  EXPECT_EQ(part.count, 2);
  own.count = 3;
  part = own.part({0, 1});
  EXPECT_THAT(part.numbers, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(part.count, 2);
}
