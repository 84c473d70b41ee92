#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/trainers/torch/metrics/metric.hpp"

// Metrics that need the variation of all samples, defined as in TorchMetrics
// 1.9 (torchmetrics.regression). Predictions p and targets t have the shape
// [samples] or [samples, outputs] and any real types; values are double.

namespace troupe {

/// Base of metrics of means and of sums of squared deviations from them.
///
/// Sums of t^2 would lose a small variance of large values, such as seconds
/// since 1970. Batches and ranks are instead combined by the parallel algorithm
/// of Chan, Golub and LeVeque (1979).
class moments_metric : public prediction_metric {
protected:
  /// The values of all states in the order of their declaration.
  using moments = std::vector<at::Tensor>;

private:
  /// The moments of one batch of at least one sample; throws on inputs of a
  /// wrong shape. *preds* and *target* have equal shapes.
  virtual moments moments_of(const at::Tensor& preds,
                             const at::Tensor& target) const = 0;

  /// The moments of the samples of *a* and *b* together.
  virtual moments together(const moments& a, const moments& b) const = 0;

  void add(const at::Tensor& preds, const at::Tensor& target) final;
  void combine(metric_states& into, const metric_states& from) const final;
};

/// Base of metrics that compare the errors e = p - t with the variation of the
/// targets, per output; they share these states in a collection.
class target_moments : public moments_metric {
public:
  std::string state_key() const final { return "target_moments"; }

protected:
  target_moments();

  /// Sum of (t - mean t)^2.
  const at::Tensor& target_variation() const;

  /// Sum of (e - mean e)^2.
  const at::Tensor& error_variation() const;

  /// Sum of e^2.
  const at::Tensor& squared_errors() const;

  /// int64, 0-d.
  const at::Tensor& samples() const;

private:
  moments moments_of(const at::Tensor& preds,
                     const at::Tensor& target) const final;
  moments together(const moments& a, const moments& b) const final;
};

/// How the scores of several outputs become a value.
enum class multioutput {
  raw_values,        ///< A vector of all scores.
  uniform_average,   ///< Their mean.
  variance_weighted, ///< Their mean, weighted by the variances of the targets.
};

struct r2_score_options {
  /// Number of independent regressors to adjust the score for; 0: not adjusted.
  std::int64_t adjusted = 0;
  troupe::multioutput multioutput = troupe::multioutput::uniform_average;
};

/// The coefficient of determination, 1 - sum (p - t)^2 / sum (t - mean t)^2.
///
/// Sums up to 1e-4 count as zero: without error the score is 1, without
/// variation 0. `compute` throws on all ranks if they have fewer than two
/// samples.
class r2_score final : public target_moments {
public:
  using options = r2_score_options;

  /// Throws if `adjusted` is negative.
  explicit r2_score(options x = {});

  std::string name() const override { return "r2_score"; }

private:
  at::Tensor result() const override;
  at::Tensor adjusted(const at::Tensor& plain, std::int64_t samples) const;

  options options_;
};

/// 1 - variance(t - p) / variance(t): 1 if the error does not vary, 0 if only
/// the target does not vary.
class explained_variance final : public target_moments {
public:
  explicit explained_variance(multioutput how = multioutput::uniform_average);

  std::string name() const override { return "explained_variance"; }

private:
  at::Tensor result() const override;

  multioutput multioutput_;
};

/// sum (p - t)^2 / sum (t - mean t)^2, or its root; the mean over outputs. NaN
/// without samples.
class relative_squared_error final : public target_moments {
public:
  /// *squared*: false for the root.
  explicit relative_squared_error(bool squared = true);

  /// "relative_squared_error" or "root_relative_squared_error".
  std::string name() const override;

private:
  at::Tensor result() const override;

  bool squared_;
};

/// Pearson's correlation coefficient of predictions and targets, in [-1, 1], of
/// each output. NaN, with a warning, where one of them hardly varies or there
/// are fewer than two samples.
class pearson_corr_coef final : public moments_metric {
public:
  /// Throws if there are fewer than one output.
  explicit pearson_corr_coef(std::int64_t num_outputs = 1);

  std::string name() const override { return "pearson_corr_coef"; }
  std::string state_key() const override;

private:
  moments moments_of(const at::Tensor& preds,
                     const at::Tensor& target) const override;
  moments together(const moments& a, const moments& b) const override;
  at::Tensor result() const override;

  std::int64_t num_outputs_;
};

} // namespace troupe
