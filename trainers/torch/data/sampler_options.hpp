#pragma once

#include <cstdint>

#include "troupe/trainers/torch/data/tail.hpp"

namespace troupe {

/// How a `distributed_sampler` divides a dataset.
struct sampler_options {
  std::int64_t batch_size = 1; ///< Samples per batch and rank.
  int rank = 0;
  int world_size = 1;
  bool shuffle = false;
  std::uint64_t seed = 0; ///< Must be equal on all ranks.
  troupe::tail tail = troupe::tail::pad;
};

} // namespace troupe
