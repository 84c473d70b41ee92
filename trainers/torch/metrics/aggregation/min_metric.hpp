#pragma once

#include "troupe/trainers/torch/metrics/aggregation/aggregator.hpp"

namespace troupe {

/// The smallest of all elements, double; infinity if there are none.
class min_metric final : public aggregator {
public:
  explicit min_metric(nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "min"; }

private:
  void add(const at::Tensor& values) override;
  at::Tensor result() const override;

  std::size_t min_;
};

} // namespace troupe
