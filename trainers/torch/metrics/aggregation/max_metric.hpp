#pragma once

#include "troupe/trainers/torch/metrics/aggregation/aggregator.hpp"

namespace troupe {

/// The largest of all elements, double; -infinity if there are none.
class max_metric final : public aggregator {
public:
  explicit max_metric(nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "max"; }

private:
  void add(const at::Tensor& values) override;
  at::Tensor result() const override;

  std::size_t max_;
};

} // namespace troupe
