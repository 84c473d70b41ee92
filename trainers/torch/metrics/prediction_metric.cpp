#include "troupe/trainers/torch/metrics/prediction_metric.hpp"

#include "troupe/trainers/torch/metrics/checked_inputs.hpp"

namespace troupe {

void prediction_metric::update(const at::Tensor& preds,
                               const at::Tensor& target) {
  if (preds.device() != target.device())
    refuse_metric(name(), "predictions are on " + preds.device().str()
                            + ", the target is on " + target.device().str());
  if (preds.numel() == 0 && target.numel() == 0)
    return;
  accumulate(preds.device(), [&] { add(preds, target); });
}

at::Tensor prediction_metric::forward(const at::Tensor& preds,
                                      const at::Tensor& target) {
  return batch_value([&] { update(preds, target); });
}

void prediction_metric::check_same_shape(const at::Tensor& preds,
                                         const at::Tensor& target) const {
  if (preds.sizes() != target.sizes())
    refuse_metric(name(), "predictions are of shape " + shape_of(preds)
                            + ", the target is of shape " + shape_of(target));
}

} // namespace troupe
