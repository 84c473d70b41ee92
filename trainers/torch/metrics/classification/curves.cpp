#include "troupe/trainers/torch/metrics/classification/curves.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace troupe {

using namespace internal;

namespace {

/// The thresholds of a binned curve, undefined for an exact one. Throws if they
/// are not valid.
at::Tensor thresholds_of(const std::string& metric,
                         const curve_options& options) {
  if (options.bins == 0 && options.thresholds.empty())
    return {};
  if (!options.thresholds.empty()) {
    const auto& x = options.thresholds;
    if (options.bins != 0)
      refuse_metric(metric, "takes bins or thresholds, not both");
    if (!std::ranges::is_sorted(x) || !(x.front() >= 0) || !(x.back() <= 1))
      refuse_metric(metric, "thresholds must ascend within [0, 1]");
    return at::tensor(x, at::kDouble);
  }
  if (options.bins < 2)
    refuse_metric(metric, "bins is ", options.bins, ", but must be at least 2");
  return at::linspace(0, 1, options.bins, at::kDouble);
}

/// The shape of the targets of no elements.
std::vector<std::int64_t> no_targets(const classification_task& task) {
  if (is_multiclass(task))
    return {0};
  return {0, columns_of(task)};
}

/// *scores* with NaN lower than all others.
at::Tensor ranked(const at::Tensor& scores) {
  return at::where(scores.isnan(), -1, scores);
}

/// The mean of those *values* that are not NaN; NaN if all are.
at::Tensor weighted_mean(const at::Tensor& values, const at::Tensor& weights) {
  auto known = values.isnan().logical_not();
  auto weighted = at::where(known, values * weights, 0.0).sum();
  auto total = at::where(known, weights, 0.0).sum();
  return at::where(known.any().logical_not(), NAN,
                   at::where(total.ne(0), weighted / total, 0.0));
}

/// The curve with a threshold at each of *scores*, and one above all.
/// *positive* (bool) marks the elements of the class; both 1-d.
ranking_curve exact_curve(const at::Tensor& scores,
                          const at::Tensor& positive) {
  auto [sorted, order] = scores.sort(/*stable=*/true, 0, /*descending=*/true);
  auto hits = positive.index_select(0, order).to(at::kDouble);
  auto misses = at::ones_like(hits) - hits;
  // The curve has a point at the last of equal scores, and one more at the
  // front, above all scores.
  auto n = scores.size(0);
  auto last = at::ones({n}, scores.options().dtype(at::kBool));
  if (n > 1)
    last.slice(0, 0, n - 1)
      .copy_(sorted.slice(0, 1).ne(sorted.slice(0, 0, n - 1)));
  auto points = [&](const at::Tensor& x) {
    return at::cat({at::zeros({1}, x.options()), x.masked_select(last)});
  };
  return {points(hits.cumsum(0)), points(misses.cumsum(0)), hits.sum(),
          misses.sum()};
}

/// The curve of elements counted by the number of thresholds that they reach, 0
/// to all.
ranking_curve binned_curve(const at::Tensor& positives_by_bin,
                           const at::Tensor& negatives_by_bin) {
  // Elements in bin 0 do not reach any threshold.
  auto points = [](const at::Tensor& by_bin) {
    return by_bin.slice(0, 1).flip(0).cumsum(0).to(at::kDouble);
  };
  return {points(positives_by_bin), points(negatives_by_bin),
          positives_by_bin.sum().to(at::kDouble),
          negatives_by_bin.sum().to(at::kDouble)};
}

/// *x* / *all*, or 0 if *all* is.
at::Tensor rate(const at::Tensor& x, const at::Tensor& all) {
  return at::where(all.ne(0), x / all, 0.0);
}

/// The area under *y* over *x* up to *end*, standardized.
at::Tensor partial_area(at::Tensor x, at::Tensor y, double end) {
  // A binned curve may begin beyond *end*: before its first point is the
  // origin, above all scores.
  if (x[0].item<double>() > end) {
    auto origin = at::zeros({1}, x.options());
    x = at::cat({origin, x});
    y = at::cat({origin, y});
  }
  auto stop = x.le(end).sum().item<std::int64_t>();
  auto left = x[stop - 1];
  auto share = (end - left) / (x[stop] - left);
  auto at_end = at::lerp(y[stop - 1], y[stop], share);
  auto area = at::trapezoid(
    at::cat({y.slice(0, 0, stop), at_end.view({1})}),
    at::cat({x.slice(0, 0, stop), at::full({1}, end, x.options())}));
  auto by_chance = 0.5 * end * end;
  return 0.5 * (1 + (area - by_chance) / (end - by_chance));
}

} // namespace

curve_metric::curve_metric(std::string name, classification_task task,
                           curve_options options)
  : name_(std::move(name)), task_(std::move(task)), average_(options.average),
    thresholds_(thresholds_of(name_, options)),
    range_(add_state("label_range", metric_reduction::max, no_range())) {
  check_task(name_, task_);
  if (is_multiclass(task_) && average_ == average::micro)
    refuse_metric(name_, "the curves of classes have no micro average");
  auto columns = columns_of(task_);
  if (exact()) {
    scores_ = add_state("scores", metric_reduction::cat,
                        at::empty({0, columns}, at::kDouble));
    targets_ = add_state("targets", metric_reduction::cat,
                         at::empty(no_targets(task_), at::kLong));
  } else {
    auto bins = at::zeros({columns, thresholds_.size(0) + 1}, at::kLong);
    positives_ = add_state("positives", metric_reduction::sum, bins);
    negatives_ = add_state("negatives", metric_reduction::sum, bins);
    kinds_ =
      add_state("kinds", metric_reduction::max, at::zeros({2}, at::kLong));
  }
}

std::string curve_metric::state_key() const {
  auto result = "curve of " + to_string(task_);
  if (exact())
    return result;
  result += " at";
  for (std::int64_t i = 0; i < thresholds_.size(0); ++i)
    result += ' ' + exact_text(thresholds_[i].item<double>());
  return result;
}

void curve_metric::add(const at::Tensor& preds, const at::Tensor& target) {
  auto batch = keep_scores(name_, task_, preds, target);
  state(range_) = at::maximum(state(range_), batch.range);
  if (exact())
    keep(batch);
  else
    count(batch);
}

void curve_metric::keep(const score_batch& batch) {
  append(scores_, batch.scores.to(at::kDouble));
  append(targets_, batch.target);
}

void curve_metric::count(const score_batch& batch) {
  auto columns = columns_of(task_);
  auto bins = thresholds_.size(0) + 1;
  auto outside = any_outside(batch.scores);
  auto found = ranked(as_probabilities(task_, batch.scores));
  // Round thresholds to the type of the scores, so that 0.7 reaches 0.7.
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
  state(positives_) = counted(state(positives_), positive);
  state(negatives_) = counted(state(negatives_), negative);
  state(kinds_) = at::maximum(
    state(kinds_), at::stack({outside.logical_not(), outside}).to(at::kLong));
}

std::vector<ranking_curve> curve_metric::exact_curves() const {
  auto all_scores = ranked(as_probabilities(task_, joined(scores_)));
  auto all_targets = joined(targets_);
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
  if (!score_kind_of(task_) && state(kinds_).all().item<bool>())
    refuse_metric(name_,
                  "the scores of some batches lie in [0, 1] and those of "
                  "others do not: set in the task whether they are logits or "
                  "probabilities");
  auto of = [&](std::size_t number) {
    return average_ == average::micro ? state(number).sum(0, true)
                                      : state(number);
  };
  auto of_class = of(positives_);
  auto of_others = of(negatives_);
  std::vector<ranking_curve> result;
  for (std::int64_t i = 0; i < of_class.size(0); ++i)
    result.push_back(binned_curve(of_class[i], of_others[i]));
  return result;
}

at::Tensor curve_metric::result() const {
  check_range(name_, state(range_), classes_of(task_));
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> weights;
  for (auto& curve : exact() ? exact_curves() : binned_curves()) {
    values.push_back(value_of(curve));
    weights.push_back(average_ == average::weighted
                        ? curve.positives
                        : at::ones_like(curve.positives));
  }
  if (average_ == average::micro || is_binary(task_))
    return values.front();
  if (average_ == average::none)
    return at::stack(values);
  return weighted_mean(at::stack(values), at::stack(weights));
}

auroc::auroc(classification_task task, curve_options options,
             std::optional<double> max_false_positive_rate)
  : curve_metric("auroc", std::move(task), std::move(options)),
    max_false_positive_rate_(max_false_positive_rate) {
  if (!max_false_positive_rate_)
    return;
  if (!is_binary(this->task()))
    refuse_metric(name(), "a partial area takes a binary task");
  if (!(*max_false_positive_rate_ > 0 && *max_false_positive_rate_ <= 1))
    refuse_metric(name(), "max_false_positive_rate is ",
                  *max_false_positive_rate_, ", but must lie in (0, 1]");
}

at::Tensor auroc::value_of(const ranking_curve& curve) const {
  if (at::logical_or(curve.positives.eq(0), curve.negatives.eq(0)).item<bool>())
    warn_metric(name(), "one class alone has no curve: the value is 0");
  auto found = rate(curve.true_positives, curve.positives);
  auto wrong = rate(curve.false_positives, curve.negatives);
  auto end = max_false_positive_rate_.value_or(1);
  // A binned curve cannot be interpolated beyond its last point.
  if (end == 1 || found.sum().item<double>() == 0
      || wrong.max().item<double>() <= end)
    return at::trapezoid(found, wrong);
  return partial_area(wrong, found, end);
}

at::Tensor average_precision::value_of(const ranking_curve& curve) const {
  if (curve.positives.item<double>() == 0) {
    auto unknown = exact() && is_multiclass(task());
    warn_metric(name(), unknown ? "a class is never a target and is left out"
                                : "a class without elements counts as 0");
    return at::full_like(curve.positives, unknown ? NAN : 0.0);
  }
  auto found = curve.true_positives + curve.false_positives;
  auto precision = at::where(found.ne(0), curve.true_positives / found, 0.0);
  auto recall = curve.true_positives / curve.positives;
  auto before = at::zeros({1}, recall.options());
  return (at::diff(recall, 1, 0, before) * precision).sum();
}

} // namespace troupe
