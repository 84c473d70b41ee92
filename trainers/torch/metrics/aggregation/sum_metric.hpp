#pragma once

#include "troupe/trainers/torch/metrics/aggregation/aggregator.hpp"

namespace troupe {

/// The sum of all elements, double; 0 if there are none.
class sum_metric final : public aggregator {
public:
  explicit sum_metric(nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "sum"; }

private:
  void add(const at::Tensor& values) override;
  at::Tensor result() const override;

  std::size_t sum_;
};

} // namespace troupe
