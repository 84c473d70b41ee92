#pragma once

#include <cstdint>

#include "troupe/trainers/torch/data/tail.hpp"

namespace troupe {

/// How `prepare_data_loader` reads a dataset. Defaults are those of Python's
/// DataLoader and DistributedSampler.
struct data_loader_options {
  /// Samples per batch and rank: the global batch is *batch_size* times the
  /// world size.
  std::int64_t batch_size = 1;
  bool shuffle = false;
  /// Decides, together with the epoch, the order and the random numbers that
  /// datasets are given. Must be equal on all ranks.
  std::uint64_t seed = 0;
  troupe::tail tail = troupe::tail::pad;
  /// Threads that read ahead; 0 reads in the thread of the loop.
  int workers = 0;
  /// Batches per worker that are ready or being read ahead of the loop.
  int prefetch = 2;
  /// Whether batches arrive on the rank's device.
  bool move_to_device = true;
};

} // namespace troupe
