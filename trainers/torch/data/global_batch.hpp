#pragma once

#include <cstdint>

#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// How each rank reads its part of a global batch, which all ranks together
/// train on in one step of the optimizer.
struct batch_split {
  std::int64_t batch_size = 1;     ///< `data_loader_options::batch_size`
  int accumulate_grad_batches = 1; ///< `loop_options::accumulate_grad_batches`

  bool operator==(const batch_split&) const = default;
};

/// Divides *global_batch_size* samples among *world_size* ranks, in as few
/// batches of at most *max_batch_size* samples as possible. Throws
/// `train_error` if a number is not positive or the ranks cannot have equal
/// parts: choose a multiple of each number of ranks that the run may have.
batch_split split_global_batch(int world_size, std::int64_t global_batch_size,
                               std::int64_t max_batch_size);

/// The same for the ranks of *context*. With it an elastic run keeps its global
/// batch: each whole one has the same samples, whatever the number of ranks.
inline batch_split split_global_batch(const train_context& context,
                                      std::int64_t global_batch_size,
                                      std::int64_t max_batch_size) {
  return split_global_batch(context.world_size(), global_batch_size,
                            max_batch_size);
}

} // namespace troupe
