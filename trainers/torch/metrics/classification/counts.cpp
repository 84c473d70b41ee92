#include "troupe/trainers/torch/metrics/classification/counts.hpp"

#include <cmath>

#include <ATen/Functions.h>

namespace troupe {

using namespace internal;

namespace {

/// What the four counts of each class are made of.
struct class_sums {
  at::Tensor right;     // Predicted and target.
  at::Tensor predicted; // How often the class was predicted.
  at::Tensor actual;    // How often it is the target.
  at::Tensor all;       // Number of elements that count.
};

/// Sums by label: each element is of one class.
class_sums sums_of_classes(const label_batch& batch, std::int64_t classes) {
  auto target = batch.target.reshape({-1});
  auto preds = batch.preds.reshape({-1});
  auto once = batch.counted.defined()
                ? batch.counted.reshape({-1}).to(at::kLong)
                : at::ones_like(target);
  auto by_label = [&](const at::Tensor& labels, const at::Tensor& amounts) {
    return at::zeros({classes}, target.options())
      .scatter_add_(0, labels, amounts);
  };
  auto actual = by_label(target, once);
  return {by_label(target, once.mul(preds.eq(target))), by_label(preds, once),
          actual, actual.sum()};
}

/// Sums by column: each element has 0 or 1 for every label.
class_sums sums_of_columns(const label_batch& batch) {
  auto counted = batch.counted.defined() ? batch.counted.to(at::kLong)
                                         : at::ones_like(batch.target);
  auto target = batch.target.mul(counted);
  auto preds = batch.preds.mul(counted);
  return {preds.mul(target).sum(0), preds.sum(0), target.sum(0),
          counted.sum(0)};
}

at::Tensor weighted_sum(const at::Tensor& counts,
                        const count_weights& weights) {
  return counts[0] * weights.true_positives
         + counts[1] * weights.false_positives
         + counts[2] * weights.true_negatives
         + counts[3] * weights.false_negatives;
}

at::Tensor quotient(const at::Tensor& x, const at::Tensor& y, double if_zero) {
  return at::where(y.ne(0), x / y, if_zero);
}

constexpr count_weights predictions_of_class{.true_positives = 1,
                                             .false_positives = 1};
constexpr count_weights targets_of_class{.true_positives = 1,
                                         .false_negatives = 1};

count_ratio accuracy_ratio(const classification_task& task) {
  if (is_multiclass(task))
    return {.of = {.true_positives = 1}, .to = targets_of_class};
  return {.of = {.true_positives = 1, .true_negatives = 1}, .to = {1, 1, 1, 1}};
}

count_ratio f_beta_ratio(const std::string& metric, double beta) {
  if (!(beta >= 0))
    refuse_metric(metric, "beta is ", beta, ", but must not be negative");
  auto square = beta * beta;
  return {.of = {.true_positives = 1 + square},
          .to = {.true_positives = 1 + square,
                 .false_positives = 1,
                 .false_negatives = square},
          .top_k_of_targets = false};
}

} // namespace

count_metric::count_metric(std::string name, classification_task task)
  : label_metric(std::move(name), std::move(task)),
    counts_(add_state("counts", metric_reduction::sum,
                      at::zeros({4, columns_of(this->task())}, at::kLong))) {}

void count_metric::count(const label_batch& batch) {
  auto sums = is_multiclass(task()) ? sums_of_classes(batch, columns_of(task()))
                                    : sums_of_columns(batch);
  auto false_positives = sums.predicted - sums.right;
  auto true_negatives = sums.all - sums.actual - false_positives;
  state(counts_) = counts()
                   + at::stack({sums.right, false_positives, true_negatives,
                                sums.actual - sums.right});
}

at::Tensor stat_scores::score() const {
  auto support = counts()[0] + counts()[3];
  auto by_class = at::cat({counts(), support.unsqueeze(0)}).t();
  if (average_ == average::micro || is_binary(task()))
    return by_class.sum(0);
  if (average_ == average::none)
    return by_class;
  auto scores = by_class.to(at::kDouble);
  if (average_ == average::macro)
    return scores.mean(0);
  auto weights = scores.select(1, 4);
  return (scores * (weights / weights.sum()).unsqueeze(1)).sum(0);
}

ratio_metric::ratio_metric(std::string name, classification_task task,
                           count_ratio ratio, score_options options)
  : count_metric(std::move(name), std::move(task)), ratio_(ratio),
    options_(options) {}

at::Tensor ratio_metric::score() const {
  auto counts = this->counts().to(at::kDouble);
  auto ignored = ignore_index_of(task());
  if (ratio_.leaves_out_ignored_class && is_multiclass(task()) && ignored
      && *ignored >= 0 && *ignored < columns_of(task()))
    counts.select(1, *ignored).zero_();
  if (options_.average == average::micro)
    counts = counts.sum(1, true);
  auto scores =
    quotient(weighted_sum(counts, ratio_.of), weighted_sum(counts, ratio_.to),
             options_.zero_division);
  if (options_.average == average::micro || is_binary(task()))
    return scores[0];
  if (options_.average == average::none)
    return scores;
  auto weights = mean_weights(counts);
  return quotient((scores * weights).sum(), weights.sum(), ratio_.mean_of_none);
}

at::Tensor ratio_metric::mean_weights(const at::Tensor& counts) const {
  auto targets = counts[0] + counts[3];
  if (options_.average == average::weighted)
    return targets;
  auto* classes = std::get_if<multiclass_task>(&task());
  if (!classes)
    return at::ones_like(targets);
  auto occurs = classes->top_k > 1 && ratio_.top_k_of_targets
                  ? targets
                  : targets + counts[1];
  return occurs.ne(0).to(at::kDouble);
}

accuracy::accuracy(classification_task task, troupe::average average)
  : ratio_metric("accuracy", task, accuracy_ratio(task), {.average = average}) {
}

precision::precision(classification_task task, score_options options)
  : ratio_metric("precision", std::move(task),
                 {.of = {.true_positives = 1}, .to = predictions_of_class},
                 options) {}

recall::recall(classification_task task, score_options options)
  : ratio_metric("recall", std::move(task),
                 {.of = {.true_positives = 1}, .to = targets_of_class},
                 options) {}

specificity::specificity(classification_task task, troupe::average average)
  : ratio_metric("specificity", std::move(task),
                 {.of = {.true_negatives = 1},
                  .to = {.false_positives = 1, .true_negatives = 1},
                  .top_k_of_targets = false},
                 {.average = average}) {}

f_beta::f_beta(classification_task task, double beta, score_options options)
  : f_beta("f_beta", std::move(task), beta, options) {}

f_beta::f_beta(std::string name, classification_task task, double beta,
               score_options options)
  : ratio_metric(name, std::move(task), f_beta_ratio(name, beta), options) {}

f1::f1(classification_task task, score_options options)
  : f_beta("f1", std::move(task), 1, options) {}

jaccard::jaccard(classification_task task, score_options options)
  : ratio_metric(
    "jaccard", std::move(task),
    {.of = {.true_positives = 1},
     .to = {.true_positives = 1, .false_positives = 1, .false_negatives = 1},
     .top_k_of_targets = false,
     .leaves_out_ignored_class = true,
     .mean_of_none = NAN},
    options) {}

exact_match::exact_match(classification_task task)
  : label_metric("exact_match", std::move(task)), right_(add_count("right")),
    samples_(add_count("samples")) {
  if (is_binary(this->task()))
    refuse_metric(name(), "a sample of a binary task has a single label: take "
                          "accuracy");
}

void exact_match::count(const label_batch& batch) {
  auto equal = batch.preds.eq(batch.target);
  if (batch.counted.defined())
    equal = equal.logical_or(batch.counted.logical_not());
  state(right_) = state(right_) + equal.all(1).sum();
  state(samples_) = state(samples_) + equal.size(0);
}

at::Tensor exact_match::score() const {
  return quotient(state(right_).to(at::kDouble), state(samples_), 0);
}

} // namespace troupe
