#include "troupe/trainers/torch/metrics/classification/cohen_kappa.hpp"

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

cohen_kappa::cohen_kappa(classification_task task, kappa_weights weights)
  : confusion_metric("cohen_kappa", std::move(task)), weights_(weights) {
  if (std::holds_alternative<multilabel_task>(this->task()))
    refuse_metric(name(), "a multilabel task has no classes to agree about");
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

} // namespace troupe
