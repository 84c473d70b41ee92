#pragma once

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// What becomes of the similarities of all samples.
enum class similarity_reduction { sum, mean, none };

/// The cosine of the angle between each predicted vector and its target, of
/// inputs [samples, dimensions]; NaN for a vector of zeros.
///
/// The value is their sum, their mean (NaN without samples), or the vector of
/// all, in order of ranks.
class cosine_similarity final : public prediction_metric {
public:
  explicit cosine_similarity(
    similarity_reduction reduction = similarity_reduction::sum);

  std::string name() const override { return "cosine_similarity"; }
  std::string state_key() const override;

private:
  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;

  similarity_reduction reduction_;
  std::size_t similarities_ = 0; // Their sum, or all of them.
  std::size_t samples_ = 0;      // Without `none`.
};

} // namespace troupe
