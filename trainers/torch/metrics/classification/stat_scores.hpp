#pragma once

#include "troupe/trainers/torch/metrics/classification/average.hpp"
#include "troupe/trainers/torch/metrics/classification/count_metric.hpp"

namespace troupe {

/// True positives, false positives, true negatives, false negatives and
/// support (tp + fn), in this order: of shape (5), int64 of a sum, double of a
/// mean, or (classes x 5), int64, if nothing is averaged. A
/// weighted mean is NaN without support.
class stat_scores : public count_metric {
public:
  explicit stat_scores(classification_task task,
                       troupe::average average = troupe::average::micro)
    : count_metric("stat_scores", std::move(task)), average_(average) {}

private:
  at::Tensor score() const override;

  troupe::average average_;
};

} // namespace troupe
