#include "troupe/trainers/torch/metrics/classification/log_loss.hpp"

#include <cmath>
#include <sstream>

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/classification/label_batch.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

constexpr std::size_t total = 0;
constexpr std::size_t elements = 1;

} // namespace

log_loss::log_loss(std::string name, log_loss_options options)
  : name_(std::move(name)), options_(options) {
  add_state("total", metric_reduction::sum, at::zeros({}, at::kDouble));
  add_state("elements", metric_reduction::sum, at::zeros({}, at::kLong));
}

std::string log_loss::state_key() const {
  std::ostringstream result;
  result << name_ << " of "
         << (options_.scores == score_kind::logits ? "logits"
                                                   : "probabilities");
  if (options_.ignore_index)
    result << " without " << *options_.ignore_index;
  return result.str();
}

void log_loss::add(const at::Tensor& preds, const at::Tensor& target) {
  if (preds.dim() > 1 && preds.dim() == target.dim() + 1)
    return add_rows(preds.movedim(1, -1), target);
  check_same_shape(preds, target);
  // The other class has logit 0 or the rest of the probability.
  auto other =
    options_.scores == score_kind::logits ? at::zeros_like(preds) : 1 - preds;
  add_rows(at::stack({other, preds}, -1), target);
}

void log_loss::add_rows(const at::Tensor& scores, const at::Tensor& target) {
  if (!at::isFloatingType(scores.scalar_type())
      || !at::isIntegralType(target.scalar_type(), true))
    refuse_metric(name_, std::string{"scores are floats and targets are "
                                     "labels, but have types "}
                           + at::toString(scores.scalar_type()) + " and "
                           + at::toString(target.scalar_type()));
  if (scores.sizes().slice(0, scores.dim() - 1) != target.sizes())
    refuse_metric(name_, "scores of shape " + shape_of(scores)
                           + ", classes last, and targets of shape "
                           + shape_of(target) + ", which do not fit");
  const auto classes = scores.size(-1);
  auto wide = scores.reshape({-1, classes}).to(at::kDouble);
  auto logs =
    options_.scores == score_kind::logits ? wide.log_softmax(1) : wide.log();
  auto labels = target.reshape({-1}).to(at::kLong);
  auto counted = options_.ignore_index ? labels.ne(*options_.ignore_index)
                                       : at::ones_like(labels, at::kBool);
  labels = labels.mul(counted);
  auto known = labels.clamp(0, classes - 1);
  if (labels.is_cpu() && labels.numel() > 0) {
    auto [lowest, highest] = at::aminmax(labels);
    check_range(name_, at::stack({-lowest, highest}), classes);
  }
  auto losses = -logs.gather(1, known.unsqueeze(1)).squeeze(1);
  losses = at::where(labels.eq(known), losses, NAN);
  state(total) = state(total) + at::where(counted, losses, 0.0).sum();
  state(elements) = state(elements) + counted.sum();
}

at::Tensor log_loss::result() const {
  return state(total) / state(elements);
}

} // namespace troupe
