// How many threads LibTorch's operators have in ranks that are threads.

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <troupe/sweep.hpp>

#include "tests/support/environment_guard.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/process/usable_cores.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;

namespace {

struct thread_plan {
  int number = 1;       // of the trial
  bool meets = false;   // the loop of another trial
  bool chooses = false; // one thread

  TROUPE_FIELDS(number, meets, chooses)
};

std::barrier<> two_trials{2};

/// How many threads operators use on this one: MKL's functions have a number of
/// their own.
int operator_threads() {
  auto mkl =
    reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "MKL_Get_Max_Threads"));
  return std::max(at::get_num_threads(), mkl ? mkl() : 0);
}

void report_threads(train_context& context, const thread_plan& plan) {
  if (plan.meets)
    two_trials.arrive_and_wait();
  context.report({{"threads", operator_threads()}});
  if (plan.chooses)
    at::set_num_threads(1);
}

class operator_threads_test : public ::testing::Test {
protected:
  operator_threads_test() {
    ::unsetenv("OMP_NUM_THREADS");
    at::set_num_threads(cores_);
  }

  ~operator_threads_test() override { at::set_num_threads(before_); }

  /// Ranks that are *threads*; 0: one on the thread of the test.
  torch_options options(int threads) const {
    torch_options x;
    x.scaling = {.num_workers = threads, .where = placement::in_process};
    x.run.name = "run";
    x.run.storage_path = storage_.path();
    x.run.quiet = true;
    return x;
  }

  /// How many each rank reports.
  std::vector<int> threads_of_ranks(int ranks, const thread_plan& plan = {}) {
    auto how = options(ranks);
    how.run.if_finished = if_finished::replace;
    auto x = torch_trainer{report_threads, plan, how}.fit();
    EXPECT_FALSE(x.error) << x.error->message;
    auto rows = x.metrics_history();
    std::vector<int> result;
    if (rows && !rows->empty())
      for (auto& values : rows->back().values)
        result.push_back(static_cast<int>(values.number("threads")));
    return result;
  }

  int cores_ = own_cores().count;
  int half_ = std::max(cores_ / 2, 1);
  int before_ = at::get_num_threads();
  environment_guard own_{{{"OMP_NUM_THREADS", "1"}}};
  temporary_folder storage_;
};

} // namespace

TEST_F(operator_threads_test, ranks_divide_those_of_the_host) {
  EXPECT_THAT(threads_of_ranks(2), ElementsAre(half_, half_));
  EXPECT_EQ(operator_threads(), cores_);
}

TEST_F(operator_threads_test, one_rank_has_all_and_may_choose) {
  EXPECT_THAT(threads_of_ranks(0), ElementsAre(cores_));
  EXPECT_EQ(operator_threads(), cores_);
  EXPECT_THAT(threads_of_ranks(0, {.chooses = true}), ElementsAre(cores_));
  EXPECT_EQ(operator_threads(), 1);
  EXPECT_THAT(threads_of_ranks(2), ElementsAre(1, 1));
}

TEST_F(operator_threads_test, ranks_keep_what_the_user_has_set) {
  ::setenv("OMP_NUM_THREADS", "7", 1); // OpenMP has read another one.
  EXPECT_THAT(threads_of_ranks(2), ElementsAre(cores_, cores_));
}

TEST_F(operator_threads_test, trials_divide_those_of_the_host) {
  auto x =
    sweep{torch_trainer{report_threads, thread_plan{.meets = true}, options(0)},
          {{"number", integers(1, 2)}},
          {.metric = "threads", .searcher = grid_search(), .max_concurrent = 2}}
      .fit();
  ASSERT_FALSE(x.error) << x.error->message;
  ASSERT_EQ(x.trials.size(), 2u);
  for (auto& one : x.trials)
    EXPECT_EQ(one.score, half_) << one.reason;
  EXPECT_EQ(operator_threads(), cores_);
}

} // namespace troupe::internal::test
