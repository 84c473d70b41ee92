#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "troupe/trainers/torch/data/sampler_options.hpp"

namespace troupe {

/// What one rank sees of an epoch from a global cursor on. Immutable, so that
/// threads may share it.
///
/// Global batch k holds the positions [first + k * G, first + (k + 1) * G) of
/// the epoch's order, G = batch size * world size; rank r takes every
/// world-size-th of them, starting at the r-th, as Python's DistributedSampler
/// does.
class epoch_order {
public:
  /// Of *samples* samples the first *first* positions were given out before.
  /// *order* is the permutation, nullptr the natural order.
  epoch_order(std::int64_t samples, std::int64_t first, sampler_options options,
              std::shared_ptr<const std::vector<std::int64_t>> order);

  /// Number of batches that this rank gets; each has at least one sample.
  std::int64_t batches() const noexcept;

  /// Indices of this rank's samples in batch *k*.
  std::vector<std::int64_t> indices(std::int64_t k) const;

  /// The global cursor once every rank has been given batch *k*.
  std::int64_t cursor_after(std::int64_t k) const noexcept;

  /// The global cursor at the end of the epoch, padding included.
  std::int64_t end() const noexcept { return end_; }

private:
  std::int64_t global_batch() const noexcept {
    return options_.batch_size * options_.world_size;
  }

  std::int64_t samples_;
  std::int64_t first_;
  std::int64_t end_;
  sampler_options options_;
  std::shared_ptr<const std::vector<std::int64_t>> order_;
};

} // namespace troupe
