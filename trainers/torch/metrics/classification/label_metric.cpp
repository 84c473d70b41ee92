#include "troupe/trainers/torch/metrics/classification/label_metric.hpp"

#include <ATen/Functions.h>

namespace troupe {

namespace {

constexpr std::size_t label_range = 0;

} // namespace

label_metric::label_metric(std::string name, classification_task task)
  : name_(std::move(name)), task_(std::move(task)) {
  check_task(name_, task_);
  add_state("label_range", metric_reduction::max, no_range());
}

void label_metric::add(const at::Tensor& preds, const at::Tensor& target) {
  auto batch = decide(name_, task_, preds, target);
  state(label_range) = at::maximum(state(label_range), batch.range);
  count(batch);
}

at::Tensor label_metric::result() const {
  check_range(name_, state(label_range), classes_of(task_));
  return score();
}

} // namespace troupe
