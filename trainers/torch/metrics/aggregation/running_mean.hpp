#pragma once

#include "troupe/trainers/torch/metrics/aggregation/aggregator.hpp"

namespace troupe {

/// The mean of all elements of the last updates, double; NaN without any.
///
/// Each rank keeps a window of its own; over ranks it is the mean of all that
/// is in their windows.
class running_mean final : public aggregator {
public:
  /// Over the last *window* updates. Refuses a window below 1.
  explicit running_mean(std::int64_t window = 5,
                        nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "running_mean"; }

private:
  void add(const at::Tensor& values) override;
  at::Tensor result() const override;
  void extend(metric_states& into, const metric_states& batch) const override;

  std::int64_t window_;
  std::size_t sums_;   // One element an update.
  std::size_t counts_; // The same.
};

} // namespace troupe
