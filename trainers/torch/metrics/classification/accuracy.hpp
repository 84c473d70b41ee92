#pragma once

#include "troupe/trainers/torch/metrics/classification/ratio_metric.hpp"

namespace troupe {

/// The share of elements whose label was predicted: of a multiclass task
/// tp / (tp + fn), by class its recall; else (tp + tn) / all.
///
///   accuracy top_5{multiclass_task{.num_classes = 1000, .top_k = 5}};
class accuracy : public ratio_metric {
public:
  explicit accuracy(classification_task task,
                    troupe::average average = troupe::average::micro)
    : ratio_metric("accuracy", task, ratio(task), {.average = average}) {}

private:
  static count_ratio ratio(const classification_task& task) {
    if (is_multiclass(task))
      return {.of = {.true_positives = 1},
              .to = {.true_positives = 1, .false_negatives = 1}};
    return {.of = {.true_positives = 1, .true_negatives = 1},
            .to = {1, 1, 1, 1}};
  }
};

} // namespace troupe
