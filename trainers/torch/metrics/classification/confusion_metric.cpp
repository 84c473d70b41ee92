#include "troupe/trainers/torch/metrics/classification/confusion_metric.hpp"

#include <ATen/Functions.h>

namespace troupe {

namespace {

constexpr std::size_t cells = 1;

/// One matrix of all classes, or one of two classes for each column.
std::int64_t matrices_of(const classification_task& task) {
  return is_multiclass(task) ? 1 : columns_of(task);
}

} // namespace

confusion_metric::confusion_metric(std::string name, classification_task task)
  : label_metric(std::move(name), std::move(task)) {
  const auto classes = classes_of(this->task());
  add_state(
    "confusion", metric_reduction::sum,
    at::zeros({matrices_of(this->task()) * classes * classes}, at::kLong));
}

at::Tensor confusion_metric::confusion() const {
  const auto classes = classes_of(task());
  if (std::holds_alternative<multilabel_task>(task()))
    return state(cells).view({-1, classes, classes});
  return state(cells).view({classes, classes});
}

void confusion_metric::count(const label_batch& batch) {
  const auto classes = classes_of(task());
  auto cell = batch.target * classes + batch.preds;
  if (!is_multiclass(task()))
    cell =
      cell + at::arange(columns_of(task()), cell.options()) * classes * classes;
  auto once =
    batch.counted.defined() ? batch.counted.to(at::kLong) : at::ones_like(cell);
  state(cells) =
    state(cells).scatter_add(0, cell.reshape({-1}), once.reshape({-1}));
}

} // namespace troupe
