// Values and edge cases of aggregators and regression metrics, computed by hand
// and by TorchMetrics 1.9.0.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "numbers.hpp"
#include "refusal.hpp"
#include "troupe/torch.hpp"
#include "warnings.hpp"

namespace troupe::internal::test {

namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinity = std::numeric_limits<double>::infinity();

const auto p = numbers({2.5, 0, 2, 8});
const auto t = numbers({3, -0.5, 2, 7});
const auto two_p = numbers({0, 2, -1, 2, 8, -5}).view({3, 2});
const auto two_t = numbers({0.5, 1, -1, 1, 7, -6}).view({3, 2});

template <class Metric>
double value_of(Metric metric, const at::Tensor& preds,
                const at::Tensor& target) {
  metric.update(preds, target);
  return metric.value();
}

template <class Metric>
double value_of(Metric metric, const at::Tensor& values) {
  metric.update(values);
  return metric.value();
}

template <class Metric>
std::vector<double> values_of(Metric metric, const at::Tensor& preds,
                              const at::Tensor& target) {
  metric.update(preds, target);
  auto x = metric.compute();
  return {x.template data_ptr<double>(),
          x.template data_ptr<double>() + x.numel()};
}

template <class Metric>
double of_nothing(Metric metric) {
  kept_warnings warnings;
  auto updated = metric;
  updated.update(numbers({}), numbers({}));
  auto before = metric.value(), after = updated.value();
  EXPECT_TRUE(before == after || (std::isnan(before) && std::isnan(after)));
  return before;
}

auto near(double x) {
  return testing::DoubleNear(x, 1e-6);
}

} // namespace

TEST(aggregation_test, weighs_a_mean) {
  mean_metric mean;
  mean.update(numbers({1, 2, 3}), numbers({.5, .5, 2}));
  EXPECT_EQ(mean.value(), 2.5);
  mean.update(numbers({5, 7}), torch::tensor(0.0));
  mean.update(2.5, 3);
  EXPECT_EQ(mean.value(), 2.5);
  EXPECT_EQ(mean.forward(torch::ones({2, 3}), torch::ones({3})).item<double>(),
            1);
  EXPECT_THAT(refusal([&] {
                mean.update(numbers({1, 2}), numbers({1, 2, 3}));
              }),
              HasSubstr("weights of shape [3] do not fit values of shape [2]"));
}

TEST(aggregation_test, has_values_without_elements) {
  kept_warnings warnings;
  EXPECT_TRUE(std::isnan(mean_metric{}.value()));
  EXPECT_TRUE(std::isnan(value_of(mean_metric{}, numbers({}))));
  EXPECT_TRUE(std::isnan(value_of(mean_metric{}, numbers({1}), numbers({0}))));
  EXPECT_TRUE(std::isnan(running_mean{}.value()));
  EXPECT_EQ(sum_metric{}.value(), 0);
  EXPECT_EQ(value_of(sum_metric{}, numbers({})), 0);
  EXPECT_EQ(max_metric{}.value(), -infinity);
  EXPECT_EQ(value_of(max_metric{}, numbers({})), -infinity);
  EXPECT_EQ(min_metric{}.value(), infinity);
  EXPECT_EQ(value_of(min_metric{}, numbers({})), infinity);
  EXPECT_EQ(cat_metric{}.compute().numel(), 0);
}

TEST(aggregation_test, leaves_nan_out_with_a_warning) {
  auto x = numbers({1, nan, 3});
  kept_warnings warnings;
  EXPECT_EQ(value_of(mean_metric{}, x), 2);
  EXPECT_EQ(value_of(sum_metric{}, x), 4);
  EXPECT_EQ(value_of(min_metric{}, x), 1);
  EXPECT_EQ(value_of(max_metric{}, x), 3);
  EXPECT_EQ(value_of(running_mean{}, x), 2);
  cat_metric cat;
  cat.update(x);
  EXPECT_TRUE(cat.compute().equal(numbers({1, 3})));
  EXPECT_THAT(warnings.all(),
              ElementsAre("mean: 1 NaN left out", "sum: 1 NaN left out",
                          "min: 1 NaN left out", "max: 1 NaN left out",
                          "running_mean: 1 NaN left out",
                          "cat: 1 NaN left out"));
  EXPECT_TRUE(std::isnan(value_of(mean_metric{}, numbers({nan, nan}))));
  EXPECT_EQ(value_of(max_metric{}, numbers({nan})), -infinity);
  EXPECT_EQ(value_of(mean_metric{}, numbers({1, 2, 4}), numbers({1, nan, 1})),
            2.5);
}

TEST(aggregation_test, applies_the_nan_strategy) {
  auto x = numbers({1, nan, 3});
  kept_warnings warnings;
  EXPECT_EQ(value_of(mean_metric{on_nan::ignore}, x), 2);
  EXPECT_NEAR(value_of(mean_metric{0.0}, x), 4.0 / 3, 1e-15);
  EXPECT_EQ(value_of(mean_metric{2.0}, numbers({1, 2}), numbers({nan, 3})), 2);
  EXPECT_EQ(value_of(max_metric{5.0}, x), 5);
  EXPECT_EQ(value_of(running_mean{5, 2.0}, x), 2);
  EXPECT_TRUE(std::isnan(value_of(sum_metric{on_nan::disable}, x)));
  EXPECT_TRUE(std::isnan(value_of(max_metric{on_nan::disable}, x)));
  sum_metric strict{on_nan::error};
  strict.update(2);
  EXPECT_THAT(refusal([&] { strict.update(x); }),
              HasSubstr("sum: an update has 1 NaN"));
  EXPECT_EQ(strict.value(), 2);
  EXPECT_THAT(warnings.all(), IsEmpty());
  EXPECT_EQ(value_of(mean_metric{}, numbers({1, infinity})), infinity);
}

TEST(aggregation_test, means_over_the_last_updates) {
  running_mean mean{2};
  for (auto x : {1.0, 2.0, 4.0})
    mean.update(x);
  EXPECT_EQ(mean.value(), 3);
  EXPECT_EQ(mean(10.0).item<double>(), 10);
  EXPECT_EQ(mean.value(), 7);
  EXPECT_THAT(refusal([] { running_mean{0}; }),
              HasSubstr("at least one update, not 0"));
}

TEST(regression_test, has_the_values_of_the_documentation) {
  EXPECT_EQ(value_of(mean_squared_error{}, p, t), 0.375);
  EXPECT_THAT(value_of(mean_squared_error{{.squared = false}}, p, t),
              near(0.612372));
  EXPECT_EQ(value_of(mean_absolute_error{}, p, t), 0.5);
  EXPECT_THAT(value_of(mean_squared_log_error{}, p, t.abs()), near(0.049026));
  EXPECT_THAT(value_of(mean_absolute_percentage_error{}, p, t), near(0.327381));
  EXPECT_THAT(value_of(symmetric_mean_absolute_percentage_error{}, p, t),
              near(0.578788));
  EXPECT_THAT(value_of(weighted_mean_absolute_percentage_error{}, p, t),
              near(0.16));
  EXPECT_THAT(value_of(r2_score{}, p, t), near(0.948608));
  EXPECT_THAT(value_of(explained_variance{}, p, t), near(0.957173));
  EXPECT_THAT(value_of(pearson_corr_coef{}, p, t), near(0.984869));
  EXPECT_THAT(value_of(log_cosh_error{}, p, t), near(0.168502));
  EXPECT_THAT(value_of(relative_squared_error{}, p, t), near(0.051392));
  EXPECT_THAT(value_of(relative_squared_error{false}, p, t),
              near(std::sqrt(0.0513918)));
  EXPECT_THAT(value_of(cosine_similarity{}, p.unsqueeze(0), t.unsqueeze(0)),
              near(0.992855));
}

TEST(regression_test, has_values_for_each_output) {
  EXPECT_THAT(values_of(mean_squared_error{{.num_outputs = 2}}, two_p, two_t),
              ElementsAre(near(0.416667), near(1)));
  auto r2 = [](multioutput how) { return r2_score{{.multioutput = how}}; };
  EXPECT_THAT(values_of(r2(multioutput::raw_values), two_p, two_t),
              ElementsAre(near(0.965438), near(0.908163)));
  EXPECT_THAT(value_of(r2(multioutput::uniform_average), two_p, two_t),
              near(0.936800));
  EXPECT_THAT(value_of(r2(multioutput::variance_weighted), two_p, two_t),
              near(0.938257));
  EXPECT_THAT(
    values_of(explained_variance{multioutput::raw_values}, two_p, two_t),
    ElementsAre(near(0.967742), near(1)));
  EXPECT_THAT(values_of(cosine_similarity{similarity_reduction::none},
                        numbers({1, 0, 1, 1}).view({2, 2}),
                        numbers({2, 0, -1, -1}).view({2, 2})),
              ElementsAre(near(1), near(-1)));
}

TEST(regression_test, has_values_without_samples) {
  EXPECT_TRUE(std::isnan(of_nothing(mean_squared_error{})));
  EXPECT_TRUE(std::isnan(of_nothing(mean_absolute_percentage_error{})));
  EXPECT_TRUE(std::isnan(of_nothing(explained_variance{})));
  EXPECT_TRUE(std::isnan(of_nothing(pearson_corr_coef{})));
  EXPECT_EQ(of_nothing(weighted_mean_absolute_percentage_error{}), 0);
  EXPECT_THAT(refusal([] { of_nothing(r2_score{}); }),
              HasSubstr("needs at least two samples, has 0"));
}

TEST(regression_test, is_finite_where_the_target_is_zero) {
  auto preds = numbers({1, 2}), target = numbers({0, 2});
  EXPECT_NEAR(value_of(mean_absolute_percentage_error{}, preds, target),
              427350.427350, 1e-6);
  EXPECT_EQ(
    value_of(mean_absolute_percentage_error{}, numbers({0}), numbers({0})), 0);
  EXPECT_EQ(value_of(symmetric_mean_absolute_percentage_error{}, numbers({0}),
                     numbers({0})),
            0);
  EXPECT_NEAR(
    value_of(weighted_mean_absolute_percentage_error{}, preds, numbers({0, 0})),
    2564102.564103, 1e-6);
}

TEST(regression_test, scores_targets_without_variance) {
  auto constant = numbers({3, 3, 3});
  EXPECT_EQ(value_of(r2_score{}, constant, constant), 1);
  EXPECT_EQ(value_of(r2_score{}, numbers({1, 2, 4}), constant), 0);
  EXPECT_EQ(value_of(explained_variance{}, numbers({1, 2, 4}), constant), 0);
  EXPECT_EQ(value_of(explained_variance{}, numbers({1}), numbers({2})), 1);
  EXPECT_THAT(
    value_of(r2_score{}, numbers({10, -10, 5}), numbers({-1, 1, -0.5})),
    near(1 - 272.25 / (2.25 - 0.25 / 3)));
  r2_score one_by_one;
  one_by_one.update(numbers({1}), numbers({1}));
  one_by_one.update(numbers({2}), numbers({3}));
  EXPECT_EQ(one_by_one.value(), 0.5);
}

TEST(regression_test, adjusts_r2_only_with_enough_samples) {
  kept_warnings warnings;
  auto adjusted = [](std::int64_t k) {
    return value_of(r2_score{{.adjusted = k}}, p, t);
  };
  EXPECT_THAT(adjusted(1), near(0.922912));
  EXPECT_THAT(warnings.all(), IsEmpty());
  EXPECT_THAT(adjusted(3), near(0.948608));
  EXPECT_THAT(adjusted(5), near(0.948608));
  EXPECT_THAT(warnings.all(),
              ElementsAre(HasSubstr("4 samples do not suffice for 3"),
                          HasSubstr("4 samples do not suffice for 5")));
  EXPECT_THAT(refusal([] { r2_score{{.adjusted = -1}}; }),
              HasSubstr("cannot be adjusted for -1"));
}

TEST(regression_test, has_no_correlation_with_a_constant) {
  kept_warnings warnings;
  EXPECT_TRUE(std::isnan(
    value_of(pearson_corr_coef{}, numbers({1, 2, 3}), numbers({5, 5, 5}))));
  EXPECT_TRUE(
    std::isnan(value_of(pearson_corr_coef{}, numbers({1}), numbers({5}))));
  EXPECT_THAT(warnings.all(), Contains(HasSubstr("hardly vary")).Times(2));
}

TEST(regression_test, loses_nothing_far_from_zero) {
  EXPECT_THAT(value_of(r2_score{}, p + 1e4, t + 1e4), near(0.948608));
  EXPECT_THAT(value_of(pearson_corr_coef{}, p + 1e8, t - 1e8), near(0.984869));
  EXPECT_THAT(value_of(log_cosh_error{}, p + 1e4, t),
              near(1e4 + 0.25 - std::log(2)));
}

TEST(regression_test, propagates_nan) {
  auto x = numbers({1, nan, 3}), y = numbers({1, 2, 4});
  EXPECT_TRUE(std::isnan(value_of(mean_squared_error{}, x, y)));
  EXPECT_TRUE(std::isnan(value_of(mean_absolute_percentage_error{}, y, x)));
  EXPECT_TRUE(std::isnan(value_of(r2_score{}, x, y)));
}

} // namespace troupe::internal::test
