#pragma once

#include "troupe/trainers/torch/metrics/classification/ratio_metric.hpp"

namespace troupe {

/// The share of a class's predictions that are right: tp / (tp + fp).
class precision : public ratio_metric {
public:
  explicit precision(classification_task task, score_options options = {})
    : ratio_metric("precision", std::move(task),
                   {.of = {.true_positives = 1},
                    .to = {.true_positives = 1, .false_positives = 1}},
                   options) {}
};

} // namespace troupe
