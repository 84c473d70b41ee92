#include "troupe/trainers/torch/metrics/regression/errors.hpp"

#include <cmath>

#include <ATen/ATen.h>

namespace troupe {

using namespace internal;

namespace {

at::Tensor no_errors(const std::string& kind, std::int64_t num_outputs) {
  if (num_outputs < 1)
    refuse_metric(kind, "needs at least one output, not ", num_outputs);
  return num_outputs == 1 ? at::zeros({}, at::kDouble)
                          : at::zeros({num_outputs}, at::kDouble);
}

} // namespace

mean_error::mean_error(std::string kind, std::int64_t num_outputs)
  : kind_(std::move(kind)), num_outputs_(num_outputs),
    sum_(
      add_state("sum", metric_reduction::sum, no_errors(kind_, num_outputs))),
    samples_(add_count("samples")) {}

std::string mean_error::state_key() const {
  return c10::str(kind_, '/', num_outputs_);
}

void mean_error::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  if (num_outputs_ > 1 && (preds.dim() != 2 || preds.size(1) != num_outputs_))
    refuse_metric(name(), "takes [samples, ", num_outputs_, "], not ",
                  preds.sizes());
  auto error = errors(widened(name(), preds), widened(name(), target));
  auto one = num_outputs_ == 1;
  state(sum_) = state(sum_) + (one ? error.sum() : error.sum(0));
  state(samples_) = state(samples_) + (one ? preds.numel() : preds.size(0));
}

at::Tensor mean_error::result() const {
  return state(sum_) / state(samples_);
}

mean_squared_error::mean_squared_error(options x)
  : mean_error("squared_error", x.num_outputs), squared_(x.squared) {}

std::string mean_squared_error::name() const {
  return squared_ ? "mean_squared_error" : "root_mean_squared_error";
}

at::Tensor mean_squared_error::errors(const at::Tensor& preds,
                                      const at::Tensor& target) const {
  return (preds - target).square();
}

at::Tensor mean_squared_error::result() const {
  auto mean = mean_error::result();
  return squared_ ? mean : mean.sqrt();
}

mean_absolute_error::mean_absolute_error(std::int64_t num_outputs)
  : mean_error("absolute_error", num_outputs) {}

at::Tensor mean_absolute_error::errors(const at::Tensor& preds,
                                       const at::Tensor& target) const {
  return (preds - target).abs();
}

log_cosh_error::log_cosh_error(std::int64_t num_outputs)
  : mean_error("log_cosh_error", num_outputs) {}

at::Tensor log_cosh_error::errors(const at::Tensor& preds,
                                  const at::Tensor& target) const {
  auto x = (preds - target).abs();
  return x + (-2 * x).exp().log1p() - std::log(2.0);
}

mean_squared_log_error::mean_squared_log_error()
  : mean_error("squared_log_error") {}

at::Tensor mean_squared_log_error::errors(const at::Tensor& preds,
                                          const at::Tensor& target) const {
  return (preds.log1p() - target.log1p()).square();
}

mean_absolute_percentage_error::mean_absolute_percentage_error()
  : mean_error("absolute_percentage_error") {}

at::Tensor
mean_absolute_percentage_error::errors(const at::Tensor& preds,
                                       const at::Tensor& target) const {
  return (preds - target).abs() / target.abs().clamp_min(smallest_divisor);
}

using smape = symmetric_mean_absolute_percentage_error;

smape::symmetric_mean_absolute_percentage_error()
  : mean_error("symmetric_absolute_percentage_error") {}

at::Tensor smape::errors(const at::Tensor& preds,
                         const at::Tensor& target) const {
  return 2 * (preds - target).abs()
         / (target.abs() + preds.abs()).clamp_min(smallest_divisor);
}

using wmape = weighted_mean_absolute_percentage_error;

wmape::weighted_mean_absolute_percentage_error()
  : errors_(add_sum("errors")), targets_(add_sum("targets")) {}

void wmape::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  auto p = widened(name(), preds);
  auto t = widened(name(), target);
  state(errors_) = state(errors_) + (p - t).abs().sum();
  state(targets_) = state(targets_) + t.abs().sum();
}

at::Tensor wmape::result() const {
  return state(errors_) / state(targets_).clamp_min(smallest_divisor);
}

cosine_similarity::cosine_similarity(similarity_reduction reduction)
  : reduction_(reduction) {
  if (reduction_ == similarity_reduction::none) {
    similarities_ = add_state("similarities", metric_reduction::cat,
                              at::empty({0}, at::kDouble));
    return;
  }
  similarities_ = add_sum("sum");
  samples_ = add_count("samples");
}

std::string cosine_similarity::state_key() const {
  return reduction_ == similarity_reduction::none ? "cosine/all" : "cosine/sum";
}

void cosine_similarity::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  if (preds.dim() != 2)
    refuse_metric(name(), "takes [samples, dimensions], not ", preds.sizes());
  auto p = widened(name(), preds);
  auto t = widened(name(), target);
  auto cosines = (p * t).sum(-1) / (p.norm(2, -1) * t.norm(2, -1));
  if (reduction_ == similarity_reduction::none) {
    append(similarities_, cosines);
    return;
  }
  state(similarities_) = state(similarities_) + cosines.sum();
  state(samples_) = state(samples_) + cosines.size(0);
}

at::Tensor cosine_similarity::result() const {
  switch (reduction_) {
    case similarity_reduction::none:
      return joined(similarities_);
    case similarity_reduction::mean:
      return state(similarities_) / state(samples_);
    case similarity_reduction::sum:
      break;
  }
  return state(similarities_);
}

} // namespace troupe
