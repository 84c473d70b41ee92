#include "troupe/trainers/torch/metrics/classification/ratio_metric.hpp"

#include <ATen/Functions.h>

namespace troupe {

namespace {

at::Tensor sum(const at::Tensor& counts, const count_weights& weights) {
  return counts[0] * weights.true_positives
         + counts[1] * weights.false_positives
         + counts[2] * weights.true_negatives
         + counts[3] * weights.false_negatives;
}

at::Tensor quotient(const at::Tensor& x, const at::Tensor& y, double if_zero) {
  return at::where(y.ne(0), x / y, if_zero);
}

} // namespace

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
  auto scores = quotient(sum(counts, ratio_.of), sum(counts, ratio_.to),
                         options_.zero_division);
  if (options_.average == average::micro
      || std::holds_alternative<binary_task>(task()))
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

} // namespace troupe
