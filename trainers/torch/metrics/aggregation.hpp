#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "troupe/trainers/torch/metrics/metric.hpp"

// Aggregates of plain values, defined as in TorchMetrics 1.9
// (torchmetrics.aggregation). Updates take tensors of any shape and any real
// type; values are double.

namespace troupe {

/// What an aggregator does about NaN.
enum class on_nan {
  warn,    ///< Skips it; `compute` warns with the number of NaN.
  ignore,  ///< Skips it.
  error,   ///< Refuses the update, which then changes nothing.
  disable, ///< Does not check: NaN propagates as in arithmetic.
};

/// One of these, or a number that replaces NaN.
using nan_strategy = std::variant<on_nan, double>;

/// Base of metrics of plain values that handle NaN.
class aggregator : public value_metric {
protected:
  explicit aggregator(nan_strategy strategy);

  struct nan_filter;

  /// Finds NaN in *values* (and *weights* of the same shape) and counts those
  /// that are skipped.
  nan_filter filter(const at::Tensor& values, const at::Tensor& weights = {});

  /// The value of the states as they are.
  virtual at::Tensor aggregate() const = 0;

private:
  bool warns() const { return strategy_ == nan_strategy{on_nan::warn}; }
  at::Tensor result() const final;

  nan_strategy strategy_;
  std::size_t nans_ = 0; // With `on_nan::warn`: the number of NaN.
};

/// The sum of all elements; 0 without elements.
class sum_metric final : public aggregator {
public:
  explicit sum_metric(nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "sum"; }

private:
  void add(const at::Tensor& values) override;
  at::Tensor aggregate() const override;

  std::size_t sum_;
};

/// The weighted mean of all elements, sum(value * weight) / sum(weight); NaN if
/// the weights sum to 0.
class mean_metric final : public aggregator {
public:
  explicit mean_metric(nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "mean"; }

  using value_metric::forward;
  using value_metric::update;

  /// Accumulates *values* with *weights*, whose shape is that of the values or
  /// broadcasts to it; throws otherwise. An element counts as NaN if its value
  /// or its weight is; a number that replaces it has weight 1.
  void update(const at::Tensor& values, const at::Tensor& weights);
  void update(double value, double weight);

  at::Tensor forward(const at::Tensor& values, const at::Tensor& weights);

private:
  void add(const at::Tensor& values) override;
  void add_weighted(const at::Tensor& values, const at::Tensor& weights);
  at::Tensor aggregate() const override;

  std::size_t sum_;
  std::size_t weight_;
};

/// Base of the smallest and the largest element.
class extremum_metric : public aggregator {
public:
  /// The reduction, "min" or "max".
  std::string name() const final;

protected:
  extremum_metric(metric_reduction reduction, nan_strategy strategy);

private:
  void add(const at::Tensor& values) final;
  at::Tensor aggregate() const final;

  metric_reduction reduction_;
  std::size_t extremum_;
};

/// The smallest of all elements; infinity without elements.
class min_metric final : public extremum_metric {
public:
  explicit min_metric(nan_strategy strategy = on_nan::warn)
    : extremum_metric(metric_reduction::min, strategy) {}
};

/// The largest of all elements; -infinity without elements.
class max_metric final : public extremum_metric {
public:
  explicit max_metric(nan_strategy strategy = on_nan::warn)
    : extremum_metric(metric_reduction::max, strategy) {}
};

/// All elements as one vector, ordered by rank, then by update.
class cat_metric final : public aggregator {
public:
  explicit cat_metric(nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "cat"; }

private:
  void add(const at::Tensor& values) override;
  at::Tensor aggregate() const override;

  std::size_t values_;
};

/// The mean of all elements of the last *window* updates; NaN without elements.
///
/// Each rank keeps its own window; the value over ranks is the mean of all
/// elements in their windows.
class running_mean final : public aggregator {
public:
  /// Throws if *window*, a number of updates, is below 1.
  explicit running_mean(std::int64_t window = 5,
                        nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "running_mean"; }

private:
  void add(const at::Tensor& values) override;
  at::Tensor aggregate() const override;
  void extend(metric_states& into, const metric_states& batch) const override;

  std::int64_t window_;
  std::size_t sums_;   // One element per update.
  std::size_t counts_; // The same.
};

} // namespace troupe
