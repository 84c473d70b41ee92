#include "troupe/trainers/torch/metrics/classification/perplexity.hpp"

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

void perplexity::add(const at::Tensor& preds, const at::Tensor& target) {
  if (preds.dim() != 3 || target.dim() != 2)
    refuse_metric(name(), "logits of shape " + shape_of(preds)
                            + " and targets of shape " + shape_of(target)
                            + ", but it takes sequences x tokens x vocabulary "
                              "and sequences x tokens");
  add_rows(preds, target);
}

at::Tensor perplexity::result() const {
  return log_loss::result().exp();
}

} // namespace troupe
