#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "troupe/trainers/torch/data/epoch_order.hpp"
#include "troupe/trainers/torch/data/sampler_options.hpp"
#include "troupe/trainers/torch/data/sampler_state.hpp"

namespace troupe {

/// Divides the indices of a dataset among the ranks, batch by batch.
///
/// The order is a pure function of seed and epoch. The cursor counts samples of
/// all ranks, so that an epoch that was begun by one world size goes on exactly
/// with another. Belongs to one thread.
class distributed_sampler {
public:
  /// Throws `train_error` for a negative number of samples, a batch size or
  /// world size below one and a rank outside of the world.
  distributed_sampler(std::int64_t samples, sampler_options options);

  /// Chooses the epoch of the next pass. A position from `load_state` is kept
  /// if it is of this very epoch.
  void set_epoch(std::uint64_t epoch);

  /// Begins a pass: at the position of `load_state` if that was called since
  /// the last pass, else at the start of the epoch. An epoch that was passed to
  /// its end is followed by the next one if `set_epoch` was not called.
  void start();

  /// This rank's indices of the next batch; nothing at the end of the epoch.
  std::optional<std::vector<std::int64_t>> next();

  /// What is left of the epoch for this rank.
  epoch_order rest() const;

  /// Moves to *cursor*, a value of `epoch_order::cursor_after` or `end`. What
  /// padding adds, which depends on the world size, is not counted.
  void advance(std::int64_t cursor) noexcept {
    state_.cursor = std::min(cursor, samples_);
  }

  /// Batches of this rank in a whole epoch.
  std::int64_t batches() const;

  sampler_state state() const noexcept { return state_; }

  /// Continues where *x* says at the next `start`. Throws `train_error` for a
  /// cursor that this dataset cannot have: it is longer than the dataset.
  void load_state(const sampler_state& x);

  std::int64_t samples() const noexcept { return samples_; }
  const sampler_options& options() const noexcept { return options_; }

private:
  epoch_order from(std::int64_t cursor) const;

  std::int64_t samples_;
  sampler_options options_;
  sampler_state state_;
  bool resumed_ = false;      // load_state was called since the last start
  bool epoch_chosen_ = false; // set_epoch was called since the last start
  mutable std::shared_ptr<const std::vector<std::int64_t>> order_;
  mutable sampler_state order_of_; // what order_ was made for
};

} // namespace troupe
