#pragma once

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// What hooks add to a loop's checkpoint, and find there again. Names are
/// shared by all hooks. What rank 0 adds is saved.
struct loop_checkpoint {
  tensor_map tensors;
  metrics values;
};

} // namespace troupe
