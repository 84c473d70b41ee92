#include "troupe/trainers/torch/metrics/classification/stat_scores.hpp"

#include <ATen/Functions.h>

namespace troupe {

at::Tensor stat_scores::score() const {
  auto support = counts()[0] + counts()[3];
  auto by_class = at::cat({counts(), support.unsqueeze(0)}).t();
  if (average_ == average::micro || std::holds_alternative<binary_task>(task()))
    return by_class.sum(0);
  if (average_ == average::none)
    return by_class;
  auto scores = by_class.to(at::kDouble);
  if (average_ == average::macro)
    return scores.mean(0);
  auto weights = scores.select(1, 4);
  return (scores * (weights / weights.sum()).unsqueeze(1)).sum(0);
}

} // namespace troupe
