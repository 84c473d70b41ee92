#include "troupe/trainers/torch/metrics/classification/curve_metric.hpp"

#include <algorithm>
#include <limits>
#include <sstream>

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

constexpr std::size_t range = 0;
// Of an exact curve:
constexpr std::size_t scores = 1;
constexpr std::size_t targets = 2;
// Of a binned one, each columns x bins:
constexpr std::size_t positives = 1;
constexpr std::size_t negatives = 2;
constexpr std::size_t kinds = 3; ///< Batches inside [0, 1], and others: 0 or 1.

/// Refuses thresholds that make no curve; undefined if there are none.
at::Tensor thresholds_of(const std::string& metric,
                         const curve_options& options) {
  if (options.bins == 0 && options.thresholds.empty())
    return {};
  if (!options.thresholds.empty()) {
    const auto& x = options.thresholds;
    if (options.bins != 0)
      refuse_metric(metric, "either bins or thresholds, not both");
    if (!std::ranges::is_sorted(x) || !(x.front() >= 0) || !(x.back() <= 1))
      refuse_metric(metric, "thresholds ascend from 0 to 1");
    return at::tensor(x, at::kDouble);
  }
  if (options.bins < 2)
    refuse_metric(metric, "bins is " + std::to_string(options.bins)
                            + ", but there are two at least");
  return at::linspace(0, 1, options.bins, at::kDouble);
}

/// Shape of the targets of no elements.
std::vector<std::int64_t> no_targets(const classification_task& task) {
  if (is_multiclass(task))
    return {0};
  return {0, columns_of(task)};
}

/// *scores* with NaN below all others.
at::Tensor ranked(const at::Tensor& scores) {
  return at::where(scores.isnan(), -1, scores);
}

at::Tensor mean(const at::Tensor& values, const at::Tensor& weights) {
  auto known = values.isnan().logical_not();
  auto weighted = at::where(known, values * weights, 0.0).sum();
  auto total = at::where(known, weights, 0.0).sum();
  return at::where(known.any().logical_not(), NAN,
                   at::where(total.ne(0), weighted / total, 0.0));
}

} // namespace

curve_metric::curve_metric(std::string name, classification_task task,
                           curve_options options)
  : name_(std::move(name)), task_(std::move(task)), average_(options.average),
    thresholds_(thresholds_of(name_, options)) {
  check_task(name_, task_);
  if (is_multiclass(task_) && average_ == average::micro)
    refuse_metric(name_, "the curves of classes have no micro average");
  const auto columns = columns_of(task_);
  add_state("label_range", metric_reduction::max, no_range());
  if (exact()) {
    add_state("scores", metric_reduction::cat,
              at::empty({0, columns}, at::kDouble));
    add_state("targets", metric_reduction::cat,
              at::empty(no_targets(task_), at::kLong));
  } else {
    auto bins = at::zeros({columns, thresholds_.size(0) + 1}, at::kLong);
    add_state("positives", metric_reduction::sum, bins);
    add_state("negatives", metric_reduction::sum, bins);
    add_state("kinds", metric_reduction::max, at::zeros({2}, at::kLong));
  }
}

std::string curve_metric::state_key() const {
  std::ostringstream result;
  result.precision(std::numeric_limits<double>::max_digits10);
  result << "curve of " << to_string(task_);
  if (!exact()) {
    result << " at";
    for (std::int64_t i = 0; i < thresholds_.size(0); ++i)
      result << ' ' << thresholds_[i].item<double>();
  }
  return result.str();
}

void curve_metric::add(const at::Tensor& preds, const at::Tensor& target) {
  auto batch = keep_scores(name_, task_, preds, target);
  state(range) = at::maximum(state(range), batch.range);
  if (exact())
    keep(batch);
  else
    count(batch);
}

void curve_metric::keep(const score_batch& batch) {
  append(scores, batch.scores.to(at::kDouble));
  append(targets, batch.target);
}

void curve_metric::count(const score_batch& batch) {
  const auto columns = columns_of(task_);
  const auto bins = thresholds_.size(0) + 1;
  auto outside = any_outside(batch.scores);
  auto found = ranked(as_probabilities(task_, batch.scores));
  // A threshold is rounded as the scores are, so that 0.7 reaches 0.7.
  auto bin = at::bucketize(found, thresholds_.to(found.options()), false,
                           /*right=*/true);
  auto column = at::arange(columns, bin.options());
  auto target = is_multiclass(task_) ? batch.target.unsqueeze(1) : batch.target;
  auto positive = is_multiclass(task_) ? target.eq(column) : target.eq(1);
  auto negative = positive.logical_not().logical_and(target.ne(-1));
  auto cell = (bin + column * bins).reshape({-1});
  auto counted = [&](const at::Tensor& x, const at::Tensor& which) {
    return x.reshape({-1})
      .scatter_add(0, cell, which.reshape({-1}).to(at::kLong))
      .view({columns, bins});
  };
  state(positives) = counted(state(positives), positive);
  state(negatives) = counted(state(negatives), negative);
  state(kinds) = at::maximum(
    state(kinds), at::stack({outside.logical_not(), outside}).to(at::kLong));
}

std::vector<ranking_curve> curve_metric::exact_curves() const {
  auto all_scores = ranked(as_probabilities(task_, joined(scores)));
  auto all_targets = joined(targets);
  if (average_ == average::micro) {
    all_scores = all_scores.reshape({-1, 1});
    all_targets = all_targets.reshape({-1, 1});
  }
  std::vector<ranking_curve> result;
  for (std::int64_t i = 0; i < all_scores.size(1); ++i) {
    auto target = is_multiclass(task_) ? all_targets : all_targets.select(1, i);
    auto counted = target.ne(-1);
    auto positive = target.eq(is_multiclass(task_) ? i : 1);
    result.push_back(exact_curve(all_scores.select(1, i).masked_select(counted),
                                 positive.masked_select(counted)));
  }
  return result;
}

std::vector<ranking_curve> curve_metric::binned_curves() const {
  if (!score_kind_of(task_) && state(kinds).all().item<bool>())
    refuse_metric(name_,
                  "the scores of some batches lie in [0, 1] and those of "
                  "others do not: say in the task whether they are "
                  "logits or probabilities");
  auto of = [&](std::size_t number) {
    return average_ == average::micro ? state(number).sum(0, true)
                                      : state(number);
  };
  auto of_class = of(positives);
  auto of_others = of(negatives);
  std::vector<ranking_curve> result;
  for (std::int64_t i = 0; i < of_class.size(0); ++i)
    result.push_back(binned_curve(of_class[i], of_others[i]));
  return result;
}

at::Tensor curve_metric::result() const {
  check_range(name_, state(range), classes_of(task_));
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> weights;
  for (auto& curve : exact() ? exact_curves() : binned_curves()) {
    values.push_back(value_of(curve));
    weights.push_back(average_ == average::weighted
                        ? curve.positives
                        : at::ones_like(curve.positives));
  }
  if (average_ == average::micro || std::holds_alternative<binary_task>(task_))
    return values.front();
  if (average_ == average::none)
    return at::stack(values);
  return mean(at::stack(values), at::stack(weights));
}

} // namespace troupe
