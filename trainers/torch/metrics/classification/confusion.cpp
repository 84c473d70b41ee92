#include "troupe/trainers/torch/metrics/classification/confusion.hpp"

#include <ATen/Functions.h>

namespace troupe {

using namespace internal;

namespace {

/// One matrix of all classes, or one of two classes for each column.
std::int64_t matrices_of(const classification_task& task) {
  return is_multiclass(task) ? 1 : columns_of(task);
}

at::Tensor no_cells(const classification_task& task) {
  auto classes = classes_of(task);
  return at::zeros({matrices_of(task) * classes * classes}, at::kLong);
}

/// What *cells* are divided by.
at::Tensor divisors(const at::Tensor& cells, normalization x) {
  switch (x) {
    case normalization::rows:
      return cells.sum(-1, true);
    case normalization::columns:
      return cells.sum(-2, true);
    default:
      return cells.sum(at::IntArrayRef{-2, -1}, true);
  }
}

} // namespace

confusion_metric::confusion_metric(std::string name, classification_task task)
  : label_metric(std::move(name), std::move(task)),
    cells_(
      add_state("confusion", metric_reduction::sum, no_cells(this->task()))) {}

at::Tensor confusion_metric::confusion() const {
  auto classes = classes_of(task());
  if (std::holds_alternative<multilabel_task>(task()))
    return state(cells_).view({-1, classes, classes});
  return state(cells_).view({classes, classes});
}

void confusion_metric::count(const label_batch& batch) {
  auto classes = classes_of(task());
  auto cell = batch.target * classes + batch.preds;
  if (!is_multiclass(task()))
    cell =
      cell + at::arange(columns_of(task()), cell.options()) * classes * classes;
  auto once =
    batch.counted.defined() ? batch.counted.to(at::kLong) : at::ones_like(cell);
  state(cells_) =
    state(cells_).scatter_add(0, cell.reshape({-1}), once.reshape({-1}));
}

at::Tensor confusion_matrix::score() const {
  auto cells = confusion();
  if (normalize_ == normalization::none)
    return cells;
  auto by = divisors(cells, normalize_);
  auto empty = by.eq(0);
  if (empty.any().item<bool>())
    warn_metric(name(), "rows, columns or matrices without elements are "
                        "normalized to zeros");
  return at::where(empty, 0.0, cells.to(at::kDouble) / by);
}

cohen_kappa::cohen_kappa(classification_task task, kappa_weights weights)
  : confusion_metric("cohen_kappa", std::move(task)), weights_(weights) {
  if (std::holds_alternative<multilabel_task>(this->task()))
    refuse_metric(name(), "takes a binary or multiclass task");
}

at::Tensor cohen_kappa::score() const {
  auto observed = confusion().to(at::kDouble);
  auto targets = observed.sum(1, true);
  auto predictions = observed.sum(0, true);
  auto expected = targets.matmul(predictions) / observed.sum();
  auto classes = at::arange(observed.size(0), observed.options());
  auto distance = (classes.unsqueeze(1) - classes).abs();
  auto weights = weights_ == kappa_weights::linear      ? distance
                 : weights_ == kappa_weights::quadratic ? distance.square()
                                                        : distance.sign();
  return 1 - (weights * observed).sum() / (weights * expected).sum();
}

at::Tensor matthews_correlation::score() const {
  auto cells = confusion().to(at::kDouble);
  if (cells.dim() == 3)
    cells = cells.sum(0);
  auto targets = cells.sum(1);
  auto predictions = cells.sum(0);
  auto right = cells.trace();
  auto all = cells.sum();
  auto covariance = right * all - targets.dot(predictions);
  auto variances = (all.square() - predictions.dot(predictions))
                   * (all.square() - targets.dot(targets));
  auto value = at::where(variances.ne(0), covariance / variances.sqrt(), 0.0);
  if (cells.size(0) > 2)
    return value;
  auto only_right =
    at::where(right.gt(0).logical_and(right.eq(all)), 1.0, value);
  return at::where(right.eq(0).logical_and(all.gt(0)), -1.0, only_right);
}

} // namespace troupe
