#include "troupe/trainers/torch/metrics/classification/count_metric.hpp"

#include <ATen/Functions.h>

namespace troupe {

namespace {

constexpr std::size_t counts_state = 1;

/// What tells all four counts of each class.
struct class_sums {
  at::Tensor right;     ///< Predicted and target.
  at::Tensor predicted; ///< How often the class was predicted.
  at::Tensor actual;    ///< How often it is the target.
  at::Tensor all;       ///< Number of elements that count.
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

} // namespace

count_metric::count_metric(std::string name, classification_task task)
  : label_metric(std::move(name), std::move(task)) {
  add_state("counts", metric_reduction::sum,
            at::zeros({4, columns_of(this->task())}, at::kLong));
}

const at::Tensor& count_metric::counts() const {
  return state(counts_state);
}

void count_metric::count(const label_batch& batch) {
  auto sums = is_multiclass(task()) ? sums_of_classes(batch, columns_of(task()))
                                    : sums_of_columns(batch);
  auto false_positives = sums.predicted - sums.right;
  auto true_negatives = sums.all - sums.actual - false_positives;
  state(counts_state) = counts()
                        + at::stack({sums.right, false_positives,
                                     true_negatives, sums.actual - sums.right});
}

} // namespace troupe
