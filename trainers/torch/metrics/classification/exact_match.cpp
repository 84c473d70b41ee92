#include "troupe/trainers/torch/metrics/classification/exact_match.hpp"

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

constexpr std::size_t right = 1;
constexpr std::size_t samples = 2;

} // namespace

exact_match::exact_match(classification_task task)
  : label_metric("exact_match", std::move(task)) {
  if (std::holds_alternative<binary_task>(this->task()))
    refuse_metric(name(), "a sample of a binary task has one label alone: "
                          "take accuracy");
  add_state("right", metric_reduction::sum, at::zeros({}, at::kLong));
  add_state("samples", metric_reduction::sum, at::zeros({}, at::kLong));
}

void exact_match::count(const label_batch& batch) {
  auto equal = batch.preds.eq(batch.target);
  if (batch.counted.defined())
    equal = equal.logical_or(batch.counted.logical_not());
  state(right) = state(right) + equal.all(1).sum();
  state(samples) = state(samples) + equal.size(0);
}

at::Tensor exact_match::score() const {
  return at::where(state(samples).ne(0),
                   state(right).to(at::kDouble) / state(samples), 0.0);
}

} // namespace troupe
