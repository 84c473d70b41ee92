#pragma once

#include "troupe/trainers/torch/metrics/classification/f_beta.hpp"

namespace troupe {

/// The harmonic mean of precision and recall.
class f1 : public f_beta {
public:
  explicit f1(classification_task task, score_options options = {})
    : f_beta("f1", std::move(task), 1, options) {}
};

} // namespace troupe
