#include "troupe/trainers/torch/metrics/classification/perplexity.hpp"

#include <sstream>

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/metric_error.hpp"

namespace troupe {

void perplexity::add(const at::Tensor& preds, const at::Tensor& target) {
  if (preds.dim() != 3 || target.dim() != 2) {
    std::ostringstream sentence;
    sentence << "logits of shape " << preds.sizes() << " and targets of shape "
             << target.sizes()
             << ", but it takes sequences x tokens x vocabulary and sequences "
                "x tokens";
    refuse_metric(name(), sentence.str());
  }
  add_rows(preds, target);
}

at::Tensor perplexity::result() const {
  return log_loss::result().exp();
}

} // namespace troupe
