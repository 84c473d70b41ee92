#pragma once

#include "troupe/trainers/torch/metrics/classification/average.hpp"
#include "troupe/trainers/torch/metrics/classification/count_metric.hpp"

namespace troupe {

/// How often each count of a class is taken.
struct count_weights {
  double true_positives = 0;
  double false_positives = 0;
  double true_negatives = 0;
  double false_negatives = 0;
};

/// A score of a class: a weighted sum of its counts over another one.
struct count_ratio {
  count_weights of;
  count_weights to;
  /// Whether a macro average over top-k predictions is over the targets'
  /// classes alone, and not over those predicted too.
  bool top_k_of_targets = true;
  /// Whether a class that is the task's `ignore_index` is left out, and not
  /// only its elements.
  bool leaves_out_ignored_class = false;
  double mean_of_none = 0; ///< The average where no class occurs.
};

/// A metric that is a ratio of counts. Its value is 0-d, or of shape (classes)
/// if nothing is averaged.
class ratio_metric : public count_metric {
protected:
  ratio_metric(std::string name, classification_task task, count_ratio ratio,
               score_options options);

private:
  at::Tensor score() const final;
  at::Tensor mean_weights(const at::Tensor& counts) const;

  count_ratio ratio_;
  score_options options_;
};

} // namespace troupe
