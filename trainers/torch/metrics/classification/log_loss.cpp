#include "troupe/trainers/torch/metrics/classification/log_loss.hpp"

#include <cmath>

#include <ATen/Functions.h>

#include "troupe/trainers/torch/metrics/classification/label_batch.hpp"

namespace troupe {

using namespace internal;

log_loss::log_loss(std::string name, log_loss_options options)
  : name_(std::move(name)), options_(options), total_(add_sum("total")),
    elements_(add_count("elements")) {}

std::string log_loss::state_key() const {
  auto result = name_ + " of ";
  result += options_.scores == score_kind::logits ? "logits" : "probabilities";
  if (options_.ignore_index)
    result += c10::str(" without ", *options_.ignore_index);
  return result;
}

void log_loss::add(const at::Tensor& preds, const at::Tensor& target) {
  if (preds.dim() > 1 && preds.dim() == target.dim() + 1)
    return add_rows(preds.movedim(1, -1), target);
  check_same_shape(preds, target);
  // The other class has logit 0 or the rest of the probability, which half
  // precision rounds to 1 if the probability is small.
  auto one =
    at::isFloatingType(preds.scalar_type()) ? preds.to(at::kDouble) : preds;
  auto other =
    options_.scores == score_kind::logits ? at::zeros_like(one) : 1 - one;
  add_rows(at::stack({other, one}, -1), target);
}

void log_loss::add_rows(const at::Tensor& scores, const at::Tensor& target) {
  if (!at::isFloatingType(scores.scalar_type())
      || !at::isIntegralType(target.scalar_type(), true))
    refuse_metric(name_,
                  "scores are floats and targets are labels, but have types ",
                  scores.scalar_type(), " and ", target.scalar_type());
  if (scores.sizes().slice(0, scores.dim() - 1) != target.sizes())
    refuse_metric(name_, "scores of shape ", scores.sizes(),
                  ", classes last, and targets of shape ", target.sizes(),
                  " do not match");
  auto classes = scores.size(-1);
  auto wide = scores.reshape({-1, classes}).to(at::kDouble);
  auto logs =
    options_.scores == score_kind::logits ? wide.log_softmax(1) : wide.log();
  auto labels = target.reshape({-1}).to(at::kLong);
  auto counted = options_.ignore_index ? labels.ne(*options_.ignore_index)
                                       : at::ones_like(labels, at::kBool);
  labels = labels.mul(counted);
  auto known = labels.clamp(0, classes - 1);
  if (labels.is_cpu())
    check_range(name_, range_of(labels), classes);
  auto losses = -logs.gather(1, known.unsqueeze(1)).squeeze(1);
  losses = at::where(labels.eq(known), losses, NAN);
  state(total_) = state(total_) + at::where(counted, losses, 0.0).sum();
  state(elements_) = state(elements_) + counted.sum();
}

at::Tensor log_loss::result() const {
  return state(total_) / state(elements_);
}

void perplexity::add(const at::Tensor& preds, const at::Tensor& target) {
  if (preds.dim() != 3 || target.dim() != 2)
    refuse_metric(name(), "logits of shape ", preds.sizes(),
                  " and targets of shape ", target.sizes(),
                  ", but it takes sequences x tokens x vocabulary and "
                  "sequences x tokens");
  add_rows(preds, target);
}

at::Tensor perplexity::result() const {
  return log_loss::result().exp();
}

} // namespace troupe
