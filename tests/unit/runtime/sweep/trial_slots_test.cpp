#include "troupe/runtime/sweep/trial_slots.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::internal {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(trial_slots_test, gives_each_trial_gpus_that_no_other_has) {
  trial_slots slots{3, {0, 1, 2, 3}, {.gpus = 2}};
  EXPECT_THAT(slots.take().gpus, ElementsAre(0, 1));
  auto second = slots.take();
  EXPECT_THAT(second.gpus, ElementsAre(2, 3));
  EXPECT_THAT(slots.take().gpus, ElementsAre(4, 5));
  EXPECT_FALSE(slots.has_room()) << "all are taken";
  slots.give_back(second);
  EXPECT_THAT(slots.take().gpus, ElementsAre(2, 3));
  EXPECT_FALSE(slots.has_room());
}

TEST(trial_slots_test, gives_each_trial_the_cores_that_it_claims) {
  trial_slots slots{2, {1, 3, 5, 7, 8}, {.cores = 2}};
  EXPECT_THAT(slots.take().cores, ElementsAre(1, 3));
  auto second = slots.take();
  EXPECT_THAT(second.cores, ElementsAre(5, 7));
  EXPECT_THAT(second.gpus, IsEmpty());
}

TEST(trial_slots_test, trials_share_cores_if_there_are_too_few) {
  trial_slots slots{3, {0, 1, 2, 3}, {.cores = 2}};
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(slots.take().cores, IsEmpty());
  EXPECT_FALSE(slots.has_room());
}

TEST(trial_slots_test, trials_that_claim_nothing_have_a_place_only) {
  trial_slots slots{1, {0, 1}, {}};
  auto x = slots.take();
  EXPECT_EQ(x, (trial_slots::slot{0, {}, {}}));
  EXPECT_FALSE(slots.has_room());
}

} // namespace troupe::internal
