#pragma once

#include "troupe/trainers/torch/metrics/aggregation/aggregator.hpp"

namespace troupe {

/// All elements as one vector of double, in order of ranks, then of updates.
class cat_metric final : public aggregator {
public:
  explicit cat_metric(nan_strategy strategy = on_nan::warn);

  std::string name() const override { return "cat"; }

private:
  void add(const at::Tensor& values) override;
  at::Tensor result() const override;

  bool leaves_out_;
  std::size_t values_;
};

} // namespace troupe
