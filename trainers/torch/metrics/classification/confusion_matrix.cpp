#include "troupe/trainers/torch/metrics/classification/confusion_matrix.hpp"

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

at::Tensor totals(const at::Tensor& cells, normalization x) {
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

at::Tensor confusion_matrix::score() const {
  auto cells = confusion();
  if (normalize_ == normalization::none)
    return cells;
  auto by = totals(cells, normalize_);
  auto empty = by.eq(0);
  if (empty.any().item<bool>())
    warn_metric(name(),
                "where there are no elements it is normalized to zeros");
  return at::where(empty, 0.0, cells.to(at::kDouble) / by);
}

} // namespace troupe
