// The rates of PyTorch's schedulers are a table that tools/lr_schedule_table.py
// writes.

#include "troupe/trainers/torch/optim/lr_scheduler.hpp"

#include <fstream>
#include <limits>
#include <sstream>

#include <cereal/archives/portable_binary.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "troupe/trainers/torch/optim/fused_optimizer.hpp"

using namespace troupe;

namespace {

const nlohmann::json& table() {
  static const auto result =
    nlohmann::json::parse(std::ifstream{TROUPE_TEST_DATA "/lr_schedules.json"});
  return result;
}

std::vector<at::Tensor> parameter() {
  return {at::zeros({1}).requires_grad_()};
}

fused_sgd sgd(double lr) {
  return fused_sgd{parameter(), {.lr = lr}};
}

void expect_rates(const char* name, const lr_factor& factor) {
  SCOPED_TRACE(name);
  auto optimizer = sgd(table()["lr"]);
  lr_scheduler schedule{optimizer, factor};
  for (double expected : table()["cases"][name]) {
    EXPECT_NEAR(optimizer.lr(), expected, 1e-12)
      << "at count " << schedule.count();
    schedule.step();
  }
}

void expect_rates(const char* name, plateau_options options) {
  SCOPED_TRACE(name);
  auto optimizer = sgd(table()["lr"]);
  reduce_lr_on_plateau schedule{optimizer, options};
  auto sign = options.mode == score_order::max ? -1.0 : 1.0;
  auto value = table()["plateau_values"].begin();
  for (double expected : table()["cases"][name]) {
    EXPECT_NEAR(optimizer.lr(), expected, 1e-12);
    if (value == table()["plateau_values"].end())
      continue;
    schedule.step(sign * value++->get<double>());
    // Saved and restored between any two steps.
    auto other = sgd(1);
    reduce_lr_on_plateau continued{other, options};
    continued.load_state(schedule.state());
    EXPECT_EQ(continued.state(), schedule.state());
  }
}

} // namespace

TEST(lr_scheduler_test, has_the_rates_of_pytorch) {
  expect_rates("step", step_lr{.step_size = 7, .gamma = 0.3});
  expect_rates("multi_step",
               multi_step_lr{.milestones = {12, 3, 11, 30}, .gamma = 0.5});
  expect_rates("exponential", exponential_lr{.gamma = 0.93});
  expect_rates("linear", linear_lr{0.2, 0.9, 13});
  expect_rates("polynomial", polynomial_lr{.total = 17, .power = 2.5});
  expect_rates("cosine", cosine_annealing_lr{.total = 37, .min_factor = 0.02});
  expect_rates("one_cycle", one_cycle_lr{.total = 50});
  expect_rates("one_cycle_linear", one_cycle_lr{.total = 33,
                                                .pct_start = 0.17,
                                                .anneal = annealing::linear,
                                                .div_factor = 10,
                                                .final_div_factor = 100});
  expect_rates("one_cycle_three_phase",
               one_cycle_lr{.total = 41, .three_phase = true});
  expect_rates("chained",
               chained_lr({linear_lr{0.1, 1, 9}, exponential_lr{0.95}}));
  expect_rates(
    "sequential",
    sequential_lr({linear_lr{0.1, 1, 6}, step_lr{.step_size = 4, .gamma = 0.5},
                   exponential_lr{0.9}},
                  {6, 20}));
  expect_rates("warm_up", warm_up_lr(8, cosine_annealing_lr{.total = 32}));
}

TEST(lr_scheduler_test, reduces_on_plateaus_as_pytorch_does) {
  expect_rates("plateau", plateau_options{.factor = 0.5, .patience = 2});
  expect_rates("plateau_absolute", plateau_options{.factor = 0.5,
                                                   .patience = 1,
                                                   .threshold = 0.2,
                                                   .relative = false,
                                                   .cooldown = 2,
                                                   .min_lr = 0.1});
  expect_rates("plateau_max", plateau_options{.mode = score_order::max,
                                              .patience = 1,
                                              .threshold = 0.01,
                                              .relative = false});
}

TEST(lr_scheduler_test, stays_at_the_last_rate_after_the_end) {
  EXPECT_EQ((cosine_annealing_lr{.total = 4, .min_factor = 0.1}(9)), 0.1);
  one_cycle_lr cycle{.total = 10};
  EXPECT_EQ(cycle(10), cycle(9));
  EXPECT_EQ(cycle(1000), cycle(9));
}

TEST(lr_scheduler_test, has_a_rate_for_a_cycle_without_a_rise) {
  for (auto pct_start : {0.0, 0.05, 0.1, 1.0})
    for (std::int64_t count = 0; count < 10; ++count) {
      auto rate = one_cycle_lr{.total = 10, .pct_start = pct_start}(count);
      EXPECT_TRUE(rate > 0 && rate <= 1) << pct_start << ' ' << count;
    }
}

TEST(lr_scheduler_test, multiplies_the_rate_of_each_group) {
  auto parameters = parameter();
  fused_adam optimizer{std::vector<parameter_group<adam_options>>{
    {parameter(), {.lr = 0.5}}, {parameter(), {.lr = 2}}}};
  lr_scheduler schedule{optimizer, step_lr{.gamma = 0.5}};
  schedule.step();
  EXPECT_EQ(schedule.lr(), (std::vector<double>{0.25, 1}));
}

TEST(lr_scheduler_test, sets_the_rate_of_libtorchs_optimizers) {
  torch::optim::Adam optimizer{parameter(), torch::optim::AdamOptions{0.5}};
  lr_scheduler schedule{optimizer, step_lr{.gamma = 0.5}};
  schedule.step();
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
}

TEST(lr_scheduler_test, continues_after_a_restart_with_the_first_rates) {
  auto before = sgd(0.5);
  lr_scheduler first{before, cosine_annealing_lr{.total = 8}};
  for (int i = 0; i < 3; ++i)
    first.step();
  std::stringstream bytes;
  cereal::PortableBinaryOutputArchive{bytes}(first.state());

  auto after = sgd(0.125); // as a loaded optimizer has some other rate
  lr_scheduler second{after, cosine_annealing_lr{.total = 8}};
  lr_scheduler_state saved;
  cereal::PortableBinaryInputArchive{bytes}(saved);
  second.load_state(saved);
  EXPECT_EQ(after.lr(), before.lr());
  first.step();
  second.step();
  EXPECT_EQ(after.lr(), before.lr());
}

TEST(lr_scheduler_test, refuses_what_does_not_fit) {
  auto optimizer = sgd(1);
  EXPECT_THROW((lr_scheduler{optimizer, step_lr{.step_size = 0}}), train_error);
  EXPECT_THROW((lr_scheduler{optimizer, cosine_annealing_lr{.total = 0}}),
               train_error);
  EXPECT_THROW((lr_scheduler{optimizer, one_cycle_lr{.total = 1}}),
               train_error);
  EXPECT_THROW((lr_scheduler{optimizer, one_cycle_lr{.pct_start = 2}}),
               train_error);
  EXPECT_THROW((lr_scheduler{optimizer, lr_factor{}}), train_error);
  EXPECT_THROW(sequential_lr({step_lr{}}, {3}), train_error);
  EXPECT_THROW(sequential_lr({step_lr{}, step_lr{}, step_lr{}}, {3, 2}),
               train_error);
  EXPECT_THROW((reduce_lr_on_plateau{optimizer, {.factor = 1}}), train_error);
  EXPECT_THROW((reduce_lr_on_plateau{optimizer, {.patience = -1}}),
               train_error);
  lr_scheduler schedule{optimizer, step_lr{}};
  schedule.step();
  auto rate = optimizer.lr();
  EXPECT_THROW(schedule.load_state({5, {1, 1}}), train_error);
  EXPECT_EQ(schedule.count(), 1);
  EXPECT_EQ(optimizer.lr(), rate);
}

TEST(lr_scheduler_test, finds_improvements_on_an_infinite_value) {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  auto optimizer = sgd(1);
  reduce_lr_on_plateau schedule{optimizer, {.factor = 0.5, .patience = 1}};
  schedule.step(infinity);
  for (double value : {4, 3, 2, 1})
    schedule.step(value);
  EXPECT_EQ(optimizer.lr(), 1);
  // As in a state saved when an infinite value was taken for the best.
  schedule.load_state({.best = infinity, .lr = {1}});
  for (double value : {4, 3, 2, 1})
    schedule.step(value);
  EXPECT_EQ(optimizer.lr(), 1);
}

TEST(lr_scheduler_test, finds_nothing_better_than_the_best_infinity) {
  auto optimizer = sgd(1);
  reduce_lr_on_plateau schedule{
    optimizer, {.mode = score_order::max, .factor = 0.5, .patience = 1}};
  for (double value : {std::numeric_limits<double>::infinity(), 1.0, 2.0})
    schedule.step(value);
  EXPECT_EQ(optimizer.lr(), 0.5);
}

TEST(lr_scheduler_test, takes_a_nan_for_no_improvement) {
  auto optimizer = sgd(1);
  reduce_lr_on_plateau schedule{optimizer, {.factor = 0.5, .patience = 0}};
  schedule.step(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(optimizer.lr(), 0.5);
  schedule.step(1);
  EXPECT_EQ(optimizer.lr(), 0.5);
}
