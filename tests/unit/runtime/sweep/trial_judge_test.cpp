#include "troupe/runtime/sweep/trial_judge.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

namespace {

report_batch report_of(std::uint64_t index, double loss) {
  report_batch result;
  result.index = index;
  result.values.push_back(metrics{{"loss", loss}});
  return result;
}

class trial_judge_test : public testing::Test {
protected:
  std::unique_ptr<sweep_store> open() {
    sweep_description x;
    x.name = "sweep";
    x.space = "[1]";
    return sweep_store::open(storage_.path(), std::move(x)).value();
  }

  static halving halves() {
    return halving{{.reduction = 2}, score_order::min};
  }

  temporary_folder storage_;
};

} // namespace

// It was killed between the comparison and the end of the trial.
TEST_F(trial_judge_test, ends_a_trial_that_an_earlier_driver_was_to_end) {
  std::optional<std::string> why;
  {
    auto store = open();
    trial_judge first{"loss", halves(), *store};
    EXPECT_FALSE(first.judge(0, report_of(0, 1)));
    why = first.judge(1, report_of(0, 2));
    ASSERT_TRUE(why);
  }
  auto store = open();
  trial_judge next{"loss", halves(), *store};
  next.restore(store->history().comparisons);
  EXPECT_EQ(next.judge(1, report_of(5, 0)), why);
  EXPECT_FALSE(next.judge(0, report_of(1, 1)));
  EXPECT_FALSE(next.judge(2, report_of(0, 1)));
  trial_judge other{"accuracy", halves(), *store};
  other.restore(store->history().comparisons);
  EXPECT_FALSE(other.judge(1, report_of(5, 0)));
}

TEST_F(trial_judge_test, forgets_comparisons_after_other_numbers_of_reports) {
  {
    auto store = open();
    trial_judge first{"loss", halves(), *store};
    EXPECT_FALSE(first.judge(0, report_of(0, 1)));
    EXPECT_TRUE(first.judge(1, report_of(0, 2)));
  }
  auto store = open();
  trial_judge next{
    "loss", halving{{.min_reports = 5, .reduction = 2}, score_order::min},
    *store};
  EXPECT_EQ(next.restore(store->history().comparisons), 2u);
  EXPECT_FALSE(next.judge(2, report_of(4, 3))) << "it is the first there";
  EXPECT_TRUE(next.judge(3, report_of(4, 4)));
}

} // namespace troupe::internal::test
