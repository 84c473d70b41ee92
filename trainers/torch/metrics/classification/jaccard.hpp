#pragma once

#include <cmath>

#include "troupe/trainers/torch/metrics/classification/ratio_metric.hpp"

namespace troupe {

/// The Jaccard index, or intersection over union: tp / (tp + fp + fn). An
/// average is NaN where no class occurs.
class jaccard : public ratio_metric {
public:
  explicit jaccard(classification_task task,
                   score_options options = {.average = average::macro})
    : ratio_metric(
      "jaccard", std::move(task),
      {.of = {.true_positives = 1},
       .to = {.true_positives = 1, .false_positives = 1, .false_negatives = 1},
       .top_k_of_targets = false,
       .leaves_out_ignored_class = true,
       .mean_of_none = NAN},
      options) {}
};

} // namespace troupe
