#include <cmath>

#include <gmock/gmock.h>

#include "troupe/runtime/sweep/trial.hpp"

namespace troupe::internal::test {

TEST(trial_test, its_name_is_known_again) {
  for (std::size_t index : {0u, 7u, 9999u, 12345u})
    EXPECT_TRUE(is_trial_name(trial_name(index))) << index;
  for (auto name : {"", "trial", "trial-", "trial-x", "trial-0001.old",
                    "trial-0001/logs", "my-trial-0001"})
    EXPECT_FALSE(is_trial_name(name)) << name;
}

TEST(trial_test, the_order_says_which_score_is_better) {
  EXPECT_TRUE(is_better(2, 1, score_order::max));
  EXPECT_TRUE(is_better(1, 2, score_order::min));
  for (auto order : {score_order::max, score_order::min}) {
    EXPECT_FALSE(is_better(1, 1, order)) << to_string(order);
    EXPECT_TRUE(is_better(1, NAN, order)) << to_string(order);
    EXPECT_FALSE(is_better(NAN, 1, order)) << to_string(order);
    EXPECT_FALSE(is_better(NAN, NAN, order)) << to_string(order);
  }
}

TEST(trial_test, the_best_is_the_first_that_finished_with_the_best_score) {
  std::vector<trial> all(5);
  for (auto& x : all)
    x.status = run_status_kind::finished;
  all[0].score = 0.5;
  all[1].score = 0.1;
  all[1].status = run_status_kind::errored;
  all[2].score = 0.25;
  all[3].score = 0.25;
  EXPECT_EQ(best_of(all, score_order::min), &all[2]);
  EXPECT_EQ(best_of(all, score_order::max), &all[0]);
  EXPECT_EQ(best_of({}, score_order::min), nullptr);
}

} // namespace troupe::internal::test
