#pragma once

#include "troupe/trainers/torch/metrics/classification/ratio_metric.hpp"

namespace troupe {

/// The weighted harmonic mean of precision and recall:
/// (1 + beta²) tp / ((1 + beta²) tp + beta² fn + fp).
class f_beta : public ratio_metric {
public:
  /// Recall counts *beta* times as much as precision. Refuses a negative one.
  f_beta(classification_task task, double beta, score_options options = {});

protected:
  f_beta(std::string name, classification_task task, double beta,
         score_options options);
};

} // namespace troupe
