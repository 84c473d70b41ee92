#include "troupe/runtime/process/resource_ledger.hpp"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::internal {

using testing::ElementsAre;
using testing::IsEmpty;

namespace {

const std::vector<std::string> four_gpus{"0", "1", "2", "3"};

} // namespace

TEST(resource_ledger_test, gives_each_run_gpus_that_no_other_has) {
  resource_ledger ledger;
  auto first = ledger.take({.gpus = four_gpus, .gpu_count = 2});
  auto second = ledger.take({.gpus = four_gpus, .gpu_count = 2});
  EXPECT_THAT(first->gpus, ElementsAre(0, 1));
  EXPECT_THAT(second->gpus, ElementsAre(2, 3));
  EXPECT_EQ(second->gpus_in_use, 0u);
  first.reset();
  EXPECT_THAT(ledger.take({.gpus = four_gpus, .gpu_count = 1})->gpus,
              ElementsAre(0));
  second.reset();
  EXPECT_THAT(ledger.take({.gpus = four_gpus, .gpu_count = 4})->gpus,
              ElementsAre(0, 1, 2, 3));
}

TEST(resource_ledger_test, runs_share_gpus_if_there_are_too_few) {
  resource_ledger ledger;
  auto take = [&](std::size_t count) {
    return ledger.take({.gpus = {"0", "1", "2"}, .gpu_count = count});
  };
  auto first = take(2);
  auto second = take(2);
  EXPECT_THAT(second->gpus, ElementsAre(0, 2));
  EXPECT_EQ(second->gpus_in_use, 1u);
  auto third = take(2);
  EXPECT_THAT(third->gpus, ElementsAre(1, 2)) << "0 has two runs already";
  EXPECT_EQ(third->gpus_in_use, 2u);
}

TEST(resource_ledger_test, knows_a_gpu_that_has_another_number_in_each_run) {
  resource_ledger ledger;
  auto first = ledger.take({.gpus = {"2", "0"}, .gpu_count = 1});
  EXPECT_THAT(first->gpus, ElementsAre(0));
  auto second = ledger.take({.gpus = four_gpus, .gpu_count = 3});
  EXPECT_THAT(second->gpus, ElementsAre(0, 1, 3));
}

TEST(resource_ledger_test, gives_each_run_the_cores_that_it_claims) {
  resource_ledger ledger;
  auto take = [&] {
    return ledger.take({.cores = {1, 3, 5, 7}, .core_count = 2});
  };
  auto first = take();
  auto second = take();
  EXPECT_THAT(first->cores, ElementsAre(1, 3));
  EXPECT_THAT(second->cores, ElementsAre(5, 7));
  EXPECT_THAT(second->gpus, IsEmpty());
  auto third = take();
  EXPECT_THAT(third->cores, ElementsAre(1, 3));
  EXPECT_EQ(third->cores_in_use, 2u);
}

TEST(resource_ledger_test, gives_no_more_than_there_is) {
  resource_ledger ledger;
  auto x = ledger.take(
    {.cores = {4}, .core_count = 2, .gpus = {"GPU-1"}, .gpu_count = 2});
  EXPECT_THAT(x->cores, ElementsAre(4));
  EXPECT_THAT(x->gpus, ElementsAre(0));
  EXPECT_THAT(ledger.take({})->cores, IsEmpty());
}

TEST(resource_ledger_test, a_share_may_outlive_it) {
  std::optional<resource_ledger> ledger{std::in_place};
  auto x = ledger->take({.gpus = four_gpus, .gpu_count = 2});
  ledger.reset();
  EXPECT_THAT(x->gpus, ElementsAre(0, 1));
  x.reset();
}

} // namespace troupe::internal
