#pragma once

#include "troupe/trainers/torch/metrics/classification/ratio_metric.hpp"

namespace troupe {

/// The share of a class's elements that were found: tp / (tp + fn).
class recall : public ratio_metric {
public:
  explicit recall(classification_task task, score_options options = {})
    : ratio_metric("recall", std::move(task),
                   {.of = {.true_positives = 1},
                    .to = {.true_positives = 1, .false_negatives = 1}},
                   options) {}
};

} // namespace troupe
