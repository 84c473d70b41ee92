#include "troupe/trainers/torch/metrics/classification/counts.hpp"

#include <cmath>

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refusal.hpp"
#include "troupe/trainers/torch/metrics/classification/confusion.hpp"
#include "troupe/trainers/torch/metrics/classification/curves.hpp"
#include "troupe/trainers/torch/metrics/classification/log_loss.hpp"
#include "warnings.hpp"

namespace troupe::internal::test {

namespace {

using testing::Contains;
using testing::HasSubstr;

at::Tensor labels(std::vector<std::int64_t> x) {
  return at::tensor(x);
}

constexpr multiclass_task ten{.num_classes = 10};

} // namespace

TEST(classification_test, names_a_label_out_of_range_and_the_classes) {
  accuracy metric{ten};
  EXPECT_THAT(
    refusal([&] {
      metric.update(labels({3, 4}), labels({3, 12}));
    }),
    HasSubstr("accuracy: label 12 is not one of the 10 classes 0 to 9"));
  EXPECT_THAT(refusal([&] {
                metric.update(labels({3, 4}), labels({-1, 4}));
              }),
              HasSubstr("label -1 is not one of the 10 classes"));
  EXPECT_THAT(refusal([&] {
                metric.update(labels({3, 10}), labels({3, 4}));
              }),
              HasSubstr("label 10 is not one of the 10 classes"));
  auto scores = at::zeros({1, 10});
  EXPECT_THAT(refusal([&] { auroc{ten}.update(scores, labels({10})); }),
              HasSubstr("auroc: label 10 is not one of the 10 classes"));
  EXPECT_THAT(refusal([&] { log_loss{}.update(scores, labels({10})); }),
              HasSubstr("log_loss: label 10 is not one of the 10 classes"));
}

TEST(classification_test, keeps_small_probabilities_of_half_precision) {
  for (auto type : {at::kHalf, at::kBFloat16}) {
    log_loss loss{{.scores = score_kind::probabilities}};
    auto small = at::full({1}, 0.0001220703125).to(type); // 2^-13
    loss.update(small, labels({0}));
    EXPECT_NEAR(loss.value(), -std::log1p(-0.0001220703125), 1e-12);
  }
}

TEST(classification_test, does_not_count_a_batch_that_it_refuses) {
  accuracy metric{ten};
  metric.update(labels({3, 4}), labels({3, 3}));
  refusal([&] { metric.update(labels({5, 5, 5}), labels({5, 5, 10})); });
  refusal([&] { metric.forward(labels({5, 5, 5}), labels({5, 5, 10})); });
  EXPECT_EQ(metric.value(), 0.5);
  EXPECT_EQ(metric.updates(), 1);
}

TEST(classification_test, names_both_shapes_that_do_not_fit) {
  EXPECT_THAT(
    refusal([] {
      accuracy{ten}.update(at::zeros({4, 9}), labels({1, 2, 3}));
    }),
    HasSubstr("predictions of shape [4, 9] and targets of shape [3]"));
  EXPECT_THAT(
    refusal([] {
      accuracy{binary_task{}}.update(at::zeros({4}), labels({1, 0, 1}));
    }),
    HasSubstr("predictions of shape [4] and targets of shape [3]"));
  EXPECT_THAT(refusal([] {
                accuracy{binary_task{}}.update(at::zeros({2}), at::zeros({2}));
              }),
              HasSubstr("targets are labels, but have type Float"));
}

TEST(classification_test, ranks_nan_scores_lowest) {
  kept_warnings warnings;
  auto scores = at::tensor({0.1, NAN, 0.9, 0.8});
  auto target = labels({0, 1, 1, 0});
  // Were the batch taken for logits, all but the NaN would be class 1.
  EXPECT_EQ(accuracy{binary_task{}}(scores, target).item<double>(), 0.5);
  EXPECT_EQ((auroc{binary_task{}}(scores, target).item<double>()), 0.5);
  EXPECT_EQ((auroc{binary_task{}, {.bins = 11}}(scores, target).item<double>()),
            0.5);
  EXPECT_THAT(warnings.all(), Contains(HasSubstr("a score is NaN")));
}

TEST(classification_test, reads_a_partial_area_before_its_first_threshold) {
  auto scores = at::tensor({1.0, 1.0, 1.0, 0.0});
  auto target = labels({1, 1, 0, 0});
  // At the threshold 1, half of the others are above it.
  auto exact = auroc{binary_task{}, {}, 0.25}(scores, target);
  auto binned = auroc{binary_task{}, {.bins = 2}, 0.25}(scores, target);
  EXPECT_NEAR(exact.item<double>(), 4 / 7.0, 1e-12);
  EXPECT_NEAR(binned.item<double>(), 4 / 7.0, 1e-12);
}

// One batch of logits lies in [0, 1] by chance.
TEST(classification_test,
     decides_once_whether_the_scores_of_a_curve_are_logits) {
  auto logits = at::tensor({0.2, 0.9, -3.0, 1.5});
  auto target = labels({0, 1, 1, 0});
  auto whole = auroc{binary_task{}}(logits, target).item<double>();
  EXPECT_EQ(whole, 0.25);
  auto in_two = [&](auto metric) {
    metric.update(logits.narrow(0, 0, 2), target.narrow(0, 0, 2));
    metric.update(logits.narrow(0, 2, 2), target.narrow(0, 2, 2));
    return metric.value();
  };
  constexpr binary_task known{.scores = score_kind::logits};
  EXPECT_EQ(in_two(auroc{binary_task{}}), whole);
  EXPECT_EQ(in_two(auroc{known}), whole);
  EXPECT_EQ(in_two(auroc{known, {.bins = 101}}), whole);
  EXPECT_THAT(refusal([&] {
                in_two(auroc{binary_task{}, {.bins = 101}});
              }),
              HasSubstr("set in the task whether they are logits"));
  // On two ranks: the states of metrics that saw one batch each.
  auroc first{binary_task{}}, second{binary_task{}};
  first.update(logits.narrow(0, 0, 2), target.narrow(0, 0, 2));
  second.update(logits.narrow(0, 2, 2), target.narrow(0, 2, 2));
  first.merge(second);
  EXPECT_EQ(first.value(), whole);
}

TEST(classification_test, takes_scores_for_what_the_task_says_they_are) {
  auto scores = at::tensor({0.2, 0.4, 0.9});
  auto target = labels({1, 1, 1});
  auto right = [&](std::optional<score_kind> kind) {
    return accuracy{binary_task{.scores = kind}}(scores, target).item<double>();
  };
  EXPECT_NEAR(right(std::nullopt), 1 / 3.0, 1e-9);
  EXPECT_NEAR(right(score_kind::probabilities), 1 / 3.0, 1e-9);
  EXPECT_EQ(right(score_kind::logits), 1);
  constexpr binary_task known{.scores = score_kind::probabilities};
  auto outside = at::tensor({0.2, 1.4, 0.9});
  EXPECT_THAT(refusal([&] { accuracy{known}.update(outside, target); }),
              HasSubstr("accuracy: scores are probabilities, but one lies"));
  EXPECT_THAT(refusal([&] { auroc{known}.update(outside, target); }),
              HasSubstr("auroc: scores are probabilities, but one lies"));
}

TEST(classification_test, warns_of_classes_without_elements) {
  kept_warnings warnings;
  auroc{binary_task{}}(at::tensor({0.2, 0.4}), labels({1, 1}));
  average_precision{binary_task{}}(at::tensor({0.2, 0.4}), labels({0, 0}));
  confusion_matrix{ten, normalization::rows}(labels({1}), labels({1}));
  EXPECT_THAT(warnings.all(), Contains(HasSubstr("auroc: one class alone")));
  EXPECT_THAT(warnings.all(), Contains(HasSubstr("average_precision: ")));
  EXPECT_THAT(warnings.all(), Contains(HasSubstr("confusion_matrix: ")));
}

TEST(classification_test, keeps_states_of_different_tasks_apart) {
  auto key = [](classification_task x) { return accuracy{x}.state_key(); };
  EXPECT_EQ(key(ten), precision{ten}.state_key());
  EXPECT_NE(key(ten), confusion_matrix{ten}.state_key());
  EXPECT_NE(key(ten), key(multilabel_task{.num_labels = 10}));
  EXPECT_NE(key(ten), key(multiclass_task{.num_classes = 10, .top_k = 2}));
  EXPECT_NE(key(ten), key(multiclass_task{10, 1, -1}));
  EXPECT_NE(key(binary_task{0.5}), key(binary_task{0.5000000001}));
  EXPECT_NE(key(binary_task{}), key(binary_task{.scores = score_kind::logits}));
  EXPECT_EQ(auroc{ten}.state_key(), average_precision{ten}.state_key());
  EXPECT_NE((auroc{ten, {.bins = 5}}.state_key()), auroc{ten}.state_key());
  EXPECT_NE((auroc{ten, {.bins = 5}}.state_key()),
            (auroc{ten, {.bins = 6}}.state_key()));
}

TEST(classification_test, computes_without_gradients_from_inputs_with_them) {
  accuracy metric{ten};
  metric.update(at::eye(10).requires_grad_(), at::arange(10));
  EXPECT_EQ(metric.value(), 1);
  EXPECT_FALSE(metric.compute().requires_grad());
}

TEST(classification_test, refuses_options_that_can_never_work) {
  EXPECT_THAT(refusal([] { accuracy{multiclass_task{}}; }),
              HasSubstr("num_classes is 0"));
  EXPECT_THAT(refusal([] {
                accuracy{multiclass_task{3, 4}};
              }),
              HasSubstr("top_k is 4, but must lie between 1 and num_classes"));
  EXPECT_THAT(refusal([] { accuracy{multilabel_task{}}; }),
              HasSubstr("num_labels is 0"));
  EXPECT_THAT(refusal([] { accuracy{binary_task{1.5}}; }),
              HasSubstr("the threshold is 1.5"));
  EXPECT_THAT(refusal([] { f_beta{ten, -1}; }), HasSubstr("beta is -1"));
  EXPECT_THAT(refusal([] { exact_match{binary_task{}}; }),
              HasSubstr("take accuracy"));
  EXPECT_THAT(refusal([] { cohen_kappa{multilabel_task{3}}; }),
              HasSubstr("cohen_kappa: "));
  EXPECT_THAT(refusal([] {
                auroc{ten, {.average = average::micro}};
              }),
              HasSubstr("no micro average"));
  EXPECT_THAT(refusal([] { auroc{ten, {}, 0.5}; }), HasSubstr("binary task"));
  EXPECT_THAT(refusal([] {
                auroc{binary_task{}, {}, 1.5};
              }),
              HasSubstr("must lie in (0, 1]"));
  EXPECT_THAT(refusal([] { auroc{ten, {.bins = 1}}; }), HasSubstr("bins is 1"));
  EXPECT_THAT(refusal([] {
                auroc{ten, {.thresholds = {0.5, 0.1}}};
              }),
              HasSubstr("thresholds must ascend"));
}

} // namespace troupe::internal::test
