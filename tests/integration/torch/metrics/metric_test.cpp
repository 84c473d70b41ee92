// What all metrics have in common, within one process.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "numbers.hpp"
#include "refusal.hpp"
#include "troupe/trainers/torch/metrics/aggregation.hpp"
#include "troupe/trainers/torch/metrics/regression/errors.hpp"
#include "troupe/trainers/torch/metrics/regression/moments.hpp"
#include "warnings.hpp"

namespace troupe::internal::test {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> values(const at::Tensor& x) {
  auto y = x.to(torch::kDouble).contiguous();
  return {y.data_ptr<double>(), y.data_ptr<double>() + y.numel()};
}

/// The mean over updates of the sum of their values.
class mean_of_updates : public value_metric {
public:
  mean_of_updates()
    : mean_(
      add_state("mean", metric_reduction::mean, at::zeros({}, at::kDouble))) {}

  std::string name() const override { return "mean_of_updates"; }

private:
  void add(const at::Tensor& values) override {
    auto n = static_cast<double>(updates());
    state(mean_) = (state(mean_) * n + values.sum()) / (n + 1);
  }

  at::Tensor result() const override { return state(mean_); }

  std::size_t mean_;
};

} // namespace

TEST(metric_test, returns_the_value_of_one_batch_and_accumulates) {
  mean_metric mean;
  EXPECT_EQ(mean(numbers({1, 3})).item<double>(), 2);
  EXPECT_EQ(mean(10.0).item<double>(), 10);
  EXPECT_DOUBLE_EQ(mean.value(), 14.0 / 3);
  EXPECT_EQ(mean.updates(), 2);
}

TEST(metric_test, computes_once_until_the_next_update_or_reset) {
  mean_metric mean;
  mean.update(1);
  auto first = mean.compute();
  EXPECT_TRUE(mean.compute().is_same(first));
  mean.update(3);
  EXPECT_EQ(mean.value(), 2);
  EXPECT_EQ(first.item<double>(), 1);
  mean(5.0);
  EXPECT_EQ(mean.value(), 3);
  mean.reset();
  EXPECT_TRUE(std::isnan(mean.value()));
}

TEST(metric_test, warns_once_if_computed_before_any_update) {
  kept_warnings warnings;
  mean_metric mean;
  mean.compute();
  mean.reset();
  mean.compute();
  EXPECT_THAT(warnings.all(), ElementsAre("mean: computed before any update"));
}

TEST(metric_test, merges_the_samples_of_another_metric) {
  mean_metric a, b, unused;
  b.update(numbers({4, 6}));
  a.merge(b);
  EXPECT_EQ(a.value(), 5);
  a.merge(b);
  a.merge(unused);
  EXPECT_EQ(a.updates(), 2);
  a.update(5);
  EXPECT_EQ(a.value(), 5);
  EXPECT_EQ(b.updates(), 1);
}

TEST(metric_test, merges_only_its_own_kind) {
  mean_squared_error of_one, of_two{{.num_outputs = 2}};
  pearson_corr_coef another;
  EXPECT_THAT(refusal([&] { of_one.merge(of_two); }),
              HasSubstr("mean_squared_error: cannot merge"));
  EXPECT_THAT(refusal([&] { of_one.merge(another); }),
              HasSubstr("pearson_corr_coef"));
}

TEST(metric_test, weighs_means_of_batches_by_the_updates_behind_them) {
  mean_of_updates a, b;
  for (auto x : {1.0, 2.0, 3.0})
    a(x);
  b.update(10);
  a.merge(b);
  EXPECT_DOUBLE_EQ(a.value(), 4);
}

TEST(metric_test, resumes_from_a_state) {
  pearson_corr_coef first;
  auto x = torch::randn({9}), y = x + torch::randn({9});
  first.update(x.slice(0, 0, 5), y.slice(0, 0, 5));
  pearson_corr_coef second;
  second.load_state(first.state());
  EXPECT_EQ(second.updates(), 1);
  first.update(x.slice(0, 5), y.slice(0, 5));
  second.update(x.slice(0, 5), y.slice(0, 5));
  EXPECT_EQ(first.value(), second.value());
}

TEST(metric_test, keeps_a_state_from_later_changes) {
  cat_metric all;
  auto batch = numbers({1, 2});
  all.update(batch);
  auto kept = all.state();
  auto copy = all;
  batch.fill_(7);
  all.update(3);
  EXPECT_THAT(values(all.compute()), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(copy.compute()), ElementsAre(1, 2));
  all.load_state(kept);
  EXPECT_THAT(values(all.compute()), ElementsAre(1, 2));
  kept.at("values").fill_(9);
  EXPECT_THAT(values(copy.compute()), ElementsAre(1, 2));
}

TEST(metric_test, refuses_a_state_of_another_metric) {
  mean_squared_error mse;
  mse.update(numbers({1}), numbers({3}));
  auto state = mse.state();
  EXPECT_THAT(refusal([&] { r2_score{}.load_state(state); }),
              HasSubstr("r2_score: the state to load has 3 tensors, not 7"));
  EXPECT_THAT(refusal([&] { mean_metric{on_nan::ignore}.load_state(state); }),
              HasSubstr("mean: the state to load has no 'weight'"));
  auto more = state;
  more["more"] = numbers({1});
  EXPECT_THAT(refusal([&] { mse.load_state(more); }),
              HasSubstr("has 4 tensors, not 3"));
  auto other = state;
  other["sum"] = other["sum"].to(torch::kFloat);
  EXPECT_THAT(refusal([&] { mse.load_state(other); }),
              HasSubstr("'sum' to load has type Float, not Double"));
  EXPECT_EQ(mse.value(), 4);
  mean_squared_error of_two{{.num_outputs = 2}};
  EXPECT_THAT(refusal([&] { of_two.load_state(state); }),
              HasSubstr("'sum' to load has shape [], not [2]"));
}

TEST(metric_test, changes_nothing_if_a_batch_is_refused) {
  mean_squared_error mse;
  mse.update(numbers({1}), numbers({3}));
  auto refused = [&](auto f) {
    EXPECT_THAT(refusal(f), HasSubstr("mean_squared_error: predictions have "
                                      "shape [2], the target has shape [3]"));
    EXPECT_EQ(mse.value(), 4);
    EXPECT_EQ(mse.updates(), 1);
  };
  refused([&] { mse.update(numbers({1, 2}), numbers({1, 2, 3})); });
  refused([&] { mse.forward(numbers({1, 2}), numbers({1, 2, 3})); });
  r2_score r2;
  r2.update(numbers({1, 2}), numbers({1, 3}));
  EXPECT_THAT(refusal([&] { r2.forward(numbers({1}), numbers({5})); }),
              HasSubstr("needs at least two samples, has 1"));
  EXPECT_EQ(r2.value(), 0.5);
}

TEST(metric_test, takes_any_real_type_and_computes_in_double) {
  auto target = torch::tensor({1, 2, 4}, torch::kInt);
  for (auto type : {torch::kHalf, torch::kBFloat16, torch::kFloat,
                    torch::kDouble, torch::kLong, torch::kByte}) {
    mean_squared_error mse;
    mse.update(torch::tensor({1, 2, 1}).to(type), target);
    EXPECT_EQ(mse.compute().scalar_type(), torch::kDouble);
    EXPECT_EQ(mse.value(), 3) << toString(type);
  }
  mean_metric mean;
  EXPECT_THAT(
    refusal([&] { mean.update(torch::ones({2}, torch::kComplexDouble)); }),
    HasSubstr("mean: takes real numbers, not ComplexDouble"));
}

TEST(metric_test, sums_in_double_where_single_precision_is_too_small) {
  mean_metric mean;
  mean.update(torch::full({1}, 16777216, torch::kFloat));
  for (int i = 0; i < 3; ++i)
    mean.update(torch::ones({1}, torch::kFloat));
  EXPECT_EQ(mean.value(), 4194304.75);
}

TEST(metric_test, keeps_no_graph) {
  auto preds = torch::ones({2, 3}).requires_grad_();
  cosine_similarity all{similarity_reduction::none};
  EXPECT_FALSE(all(preds, torch::ones({2, 3})).requires_grad());
  EXPECT_FALSE(all.compute().requires_grad());
}

TEST(metric_test, has_no_single_value_if_there_are_several) {
  mean_squared_error mse{{.num_outputs = 2}};
  mse.update(torch::zeros({2, 2}), torch::ones({2, 2}));
  EXPECT_THAT(refusal([&] { mse.value(); }), HasSubstr("this has 2"));
}

TEST(metric_test, names_the_shape_that_it_takes) {
  mean_squared_error mse{{.num_outputs = 2}};
  EXPECT_THAT(refusal([&] {
                mse.update(torch::zeros({2, 3}), torch::zeros({2, 3}));
              }),
              HasSubstr("takes [samples, 2], not [2, 3]"));
  pearson_corr_coef pearson{3};
  EXPECT_THAT(
    refusal([&] { pearson.update(torch::zeros({4}), torch::zeros({4})); }),
    HasSubstr("takes [samples, 3], not [4]"));
  r2_score r2;
  r2.update(torch::zeros({4, 2}), torch::zeros({4, 2}));
  EXPECT_THAT(refusal([&] {
                r2.update(torch::zeros({4, 3}), torch::zeros({4, 3}));
              }),
              HasSubstr("had 2 outputs so far, now inputs of shape [4, 3]"));
  // The value of a batch is made before it joins the others.
  EXPECT_THAT(
    refusal([&] { r2.forward(torch::zeros({4}), torch::zeros({4})); }),
    HasSubstr("had inputs with 2 outputs, and with 1"));
  r2_score other;
  other.update(torch::zeros({4}), torch::zeros({4}));
  EXPECT_THAT(refusal([&] { r2.merge(other); }),
              HasSubstr("had inputs with 2 outputs, and with 1"));
  EXPECT_EQ(r2.updates(), 1);
}

} // namespace troupe::internal::test
