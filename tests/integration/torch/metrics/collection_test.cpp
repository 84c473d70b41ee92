// Collections of metrics, within one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "refusal.hpp"
#include "troupe/torch.hpp"

namespace troupe::internal::test {

namespace {

using testing::HasSubstr;

metric_collection errors() {
  return metric_collection{mean_squared_error{},
                           mean_squared_error{{.squared = false}},
                           mean_absolute_error{}, r2_score{}};
}

double number(const tensor_map& values, const std::string& name) {
  return values.at(name).item<double>();
}

} // namespace

TEST(collection_test, has_the_values_that_members_have_alone) {
  auto scores = errors();
  mean_absolute_error mae;
  r2_score r2;
  for (int i = 0; i < 3; ++i) {
    auto t = torch::randn({5 + i}, torch::kDouble);
    auto p = t + 0.3 * torch::randn({5 + i}, torch::kDouble);
    scores.update(p, t);
    mae.update(p, t);
    r2.update(p, t);
  }
  auto values = scores.compute();
  EXPECT_EQ(values.size(), 4);
  EXPECT_EQ(number(values, "mean_absolute_error"), mae.value());
  EXPECT_EQ(number(values, "r2_score"), r2.value());
  EXPECT_NEAR(number(values, "mean_squared_error"),
              std::pow(number(values, "root_mean_squared_error"), 2), 1e-12);
}

TEST(collection_test, keeps_equal_states_once) {
  auto scores = errors();
  EXPECT_EQ(scores.size(), 4);
  scores.at("mean_squared_error").update(torch::zeros({3}), torch::ones({3}));
  EXPECT_EQ(scores.at("root_mean_squared_error").updates(), 1);
  EXPECT_EQ(scores.at("mean_absolute_error").updates(), 0);
  EXPECT_EQ(scores.at("r2_score").updates(), 0);
  scores.reset();
  scores.update(torch::zeros({3}), torch::ones({3}));
  EXPECT_EQ(scores.at("root_mean_squared_error").updates(), 1);
  EXPECT_EQ(scores.at("root_mean_squared_error").value(), 1);
  scores.reset();
  EXPECT_EQ(scores.at("root_mean_squared_error").updates(), 0);
  multiclass_task three{.num_classes = 3};
  metric_collection counts{accuracy{three}, precision{three}, recall{three},
                           f1{three}};
  counts.at("accuracy")
    .update(torch::tensor({0, 1, 2}), torch::tensor({0, 1, 1}));
  for (auto name : {"accuracy", "precision", "recall", "f1"})
    EXPECT_EQ(counts.at(name).updates(), 1) << name;
}

TEST(collection_test, returns_the_values_of_the_batch_alone) {
  auto scores = errors();
  scores.update(torch::zeros({2}), torch::full({2}, 2));
  auto batch = scores.forward(torch::zeros({2}), torch::tensor({1, -1}));
  EXPECT_EQ(number(batch, "mean_squared_error"), 1);
  EXPECT_EQ(number(batch, "root_mean_squared_error"), 1);
  auto all = scores.compute();
  EXPECT_EQ(number(all, "mean_squared_error"), 2.5);
  EXPECT_EQ(number(all, "mean_absolute_error"), 1.5);
}

TEST(collection_test, does_not_count_a_batch_that_a_member_refuses_to_forward) {
  auto scores = errors();
  scores.update(torch::zeros({2}), torch::tensor({2., 1.}));
  EXPECT_THAT(
    refusal([&] { scores.forward(torch::zeros({1}), torch::ones({1})); }),
    HasSubstr("r2_score: needs at least two samples"));
  EXPECT_EQ(number(scores.compute(), "mean_squared_error"), 2.5);
}

TEST(collection_test, names_and_reports_its_values) {
  metric_collection scores{mean_squared_error{{.num_outputs = 2}}};
  scores.add(mean_absolute_error{}, "mae");
  scores.rename({.prefix = "val/", .postfix = "_all"});
  scores.update(torch::zeros({1, 2}), torch::tensor({{1., 2.}}));
  EXPECT_EQ(scores.values(), (metrics{{"val/mean_squared_error_all/0", 1.0},
                                      {"val/mean_squared_error_all/1", 4.0},
                                      {"val/mae_all", 1.5}}));
}

TEST(collection_test, refuses_a_name_twice_and_late_members) {
  auto scores = errors();
  EXPECT_THAT(refusal([&] { scores.add(r2_score{}); }),
              HasSubstr("already has a metric 'r2_score'"));
  EXPECT_THAT(refusal([&] { scores.at("mape"); }),
              HasSubstr("has no metric 'mape'"));
  scores.update(torch::zeros({2}), torch::ones({2}));
  EXPECT_THAT(refusal([&] { scores.add(log_cosh_error{}); }),
              HasSubstr("cannot add 'log_cosh_error' after a batch"));
}

TEST(collection_test, resumes_from_a_state) {
  auto first = errors(), second = errors();
  first.update(torch::zeros({2}), torch::tensor({2., 1.}));
  second.load_state(first.state());
  for (auto x : {&first, &second})
    x->update(torch::ones({3}), torch::tensor({3., 5., 0.}));
  EXPECT_EQ(first.values(), second.values());
  auto unknown = first.state();
  unknown["mape/sum"] = torch::zeros({});
  EXPECT_THAT(refusal([&] { second.load_state(unknown); }),
              HasSubstr("has no metric 'mape'"));
}

} // namespace troupe::internal::test
