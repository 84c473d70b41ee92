#include "troupe/trainers/torch/metrics/regression/cosine_similarity.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

cosine_similarity::cosine_similarity(similarity_reduction reduction)
  : reduction_(reduction) {
  if (reduction_ == similarity_reduction::none) {
    similarities_ = add_state("similarities", metric_reduction::cat,
                              at::empty({0}, at::kDouble));
    return;
  }
  similarities_ =
    add_state("sum", metric_reduction::sum, at::zeros({}, at::kDouble));
  samples_ =
    add_state("samples", metric_reduction::sum, at::zeros({}, at::kLong));
}

std::string cosine_similarity::state_key() const {
  return reduction_ == similarity_reduction::none ? "cosine/all" : "cosine/sum";
}

void cosine_similarity::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  if (preds.dim() != 2)
    refuse_metric(name(),
                  "takes [samples, dimensions], not " + shape_of(preds));
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
