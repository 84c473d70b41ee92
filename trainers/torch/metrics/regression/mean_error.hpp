#pragma once

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// The mean over samples of an error that each pair of elements has.
///
/// With one output every element is a sample. With more, inputs are of shape
/// [samples, outputs] and the value is one mean for each output. NaN without
/// samples.
class mean_error : public prediction_metric {
public:
  std::string state_key() const final;

protected:
  /// *kind* names the error: metrics with equal kinds share states.
  explicit mean_error(std::string kind, std::int64_t num_outputs = 1);

  /// The error of each element; inputs are double, of equal shapes.
  virtual at::Tensor errors(const at::Tensor& preds,
                            const at::Tensor& target) const = 0;

  at::Tensor result() const override;

private:
  void add(const at::Tensor& preds, const at::Tensor& target) final;

  std::string kind_;
  std::int64_t num_outputs_;
  std::size_t sum_;
  std::size_t samples_;
};

} // namespace troupe
