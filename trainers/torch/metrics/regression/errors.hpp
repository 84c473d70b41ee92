#pragma once

#include <cstdint>
#include <string>

#include "troupe/trainers/torch/metrics/metric.hpp"

// Averages of an error that each sample has on its own, defined as in
// TorchMetrics 1.9 (torchmetrics.regression). Predictions p and targets t have
// equal shapes and any real types; values are double.

namespace troupe {

/// Base of means over samples of an elementwise error.
///
/// With one output every element is a sample, in inputs of any shape. With
/// more, inputs have the shape [samples, outputs], and the value is one mean
/// per output. NaN without samples. Throws if there are fewer than one output
/// or if the inputs have another shape.
class mean_error : public prediction_metric {
public:
  std::string state_key() const final;

protected:
  /// *kind* names the error: metrics of equal kinds share states.
  explicit mean_error(std::string kind, std::int64_t num_outputs = 1);

  /// The error of each element; inputs are double and have equal shapes.
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

struct mean_squared_error_options {
  bool squared = true; ///< false: the root of the mean (RMSE).
  std::int64_t num_outputs = 1;
};

/// The mean of (p - t)^2, or its root.
class mean_squared_error final : public mean_error {
public:
  using options = mean_squared_error_options;

  explicit mean_squared_error(options x = {});

  /// "mean_squared_error" or "root_mean_squared_error".
  std::string name() const override;

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
  at::Tensor result() const override;

  bool squared_;
};

/// The mean of |p - t|.
class mean_absolute_error final : public mean_error {
public:
  explicit mean_absolute_error(std::int64_t num_outputs = 1);

  std::string name() const override { return "mean_absolute_error"; }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

/// The mean of log(cosh(p - t)), computed without overflow.
class log_cosh_error final : public mean_error {
public:
  explicit log_cosh_error(std::int64_t num_outputs = 1);

  std::string name() const override { return "log_cosh_error"; }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

/// The mean of (log(1 + p) - log(1 + t))^2. All elements must be above -1,
/// which is not checked: below, the value is NaN.
class mean_squared_log_error final : public mean_error {
public:
  mean_squared_log_error();

  std::string name() const override { return "mean_squared_log_error"; }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

namespace internal {

/// The lower bound of divisors below, as in TorchMetrics: where a target is 0,
/// the error is huge but finite.
inline constexpr double smallest_divisor = 1.17e-6;

} // namespace internal

/// The mean of |p - t| / max(|t|, `smallest_divisor`): 1 is 100 %.
class mean_absolute_percentage_error final : public mean_error {
public:
  mean_absolute_percentage_error();

  std::string name() const override { return "mean_absolute_percentage_error"; }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

/// The mean of 2 |p - t| / max(|t| + |p|, `smallest_divisor`).
class symmetric_mean_absolute_percentage_error final : public mean_error {
public:
  symmetric_mean_absolute_percentage_error();

  std::string name() const override {
    return "symmetric_mean_absolute_percentage_error";
  }

private:
  at::Tensor errors(const at::Tensor& preds,
                    const at::Tensor& target) const override;
};

/// sum |p - t| / max(sum |t|, `smallest_divisor`): 1 is 100 %. 0 without
/// samples.
class weighted_mean_absolute_percentage_error final : public prediction_metric {
public:
  weighted_mean_absolute_percentage_error();

  std::string name() const override {
    return "weighted_mean_absolute_percentage_error";
  }

private:
  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;

  std::size_t errors_;
  std::size_t targets_;
};

/// How the similarities of all samples become a value.
enum class similarity_reduction {
  sum,
  mean, ///< NaN without samples.
  none, ///< A vector of all, ordered by rank, then by update.
};

/// The cosine of the angle between each predicted vector and its target,
/// p . t / (|p| |t|), of inputs [samples, dimensions]; throws on other shapes.
/// NaN for a vector of zeros.
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
  std::size_t similarities_ = 0; // Their sum; with `none`, all of them.
  std::size_t samples_ = 0;      // Without `none`.
};

} // namespace troupe
