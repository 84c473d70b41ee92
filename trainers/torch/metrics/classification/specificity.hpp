#pragma once

#include "troupe/trainers/torch/metrics/classification/ratio_metric.hpp"

namespace troupe {

/// The share of other classes' elements that were not taken for this one:
/// tn / (tn + fp).
class specificity : public ratio_metric {
public:
  explicit specificity(classification_task task,
                       troupe::average average = troupe::average::micro)
    : ratio_metric("specificity", std::move(task),
                   {.of = {.true_negatives = 1},
                    .to = {.false_positives = 1, .true_negatives = 1},
                    .top_k_of_targets = false},
                   {.average = average}) {}
};

} // namespace troupe
