#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "troupe/trainers/torch/data/epoch_random.hpp"

namespace troupe {

/// What happens to the samples that do not fill a whole global batch at the end
/// of an epoch.
enum class tail : std::uint8_t {
  pad, ///< As Python's DistributedSampler: the first samples of the order
       ///< are seen again until every rank has equally many.
  no_padding, ///< Every sample once per epoch over all ranks; a rank may get
              ///< one sample, or one batch, fewer than another.
  drop_last,  ///< They are left out.
};

/// How a `distributed_sampler` divides a dataset.
struct sampler_options {
  std::int64_t batch_size = 1; ///< Samples per batch and rank.
  int rank = 0;
  int world_size = 1;
  bool shuffle = false;
  std::uint64_t seed = 0; ///< Must be equal on all ranks.
  troupe::tail tail = troupe::tail::pad;
  /// Instead of all samples of the dataset; without *shuffle*.
  sample_order order = {};
  /// Instead of batches of *batch_size*, which must be 1 then; without
  /// *shuffle* and *order*. What this class says about samples holds for
  /// batches: each is given to one rank as a whole.
  batch_order batches = {};
};

/// Where an epoch stands; equal on all ranks after the same number of steps.
struct sampler_state {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::int64_t cursor = 0; ///< Samples of the epoch's order that all ranks
                           ///< together have been given, each counted once;
                           ///< batches of a `batch_order`.

  bool operator==(const sampler_state&) const = default;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(seed, epoch, cursor);
  }
};

namespace internal {

/// What one rank sees of an epoch from a global cursor on. Immutable, so that
/// threads may share it.
///
/// Global batch k holds the positions [first + k * G, first + (k + 1) * G) of
/// the epoch's order, G = batch size * world size; rank r takes every
/// world-size-th of them, starting at the r-th, as Python's DistributedSampler
/// does.
class epoch_order {
public:
  using numbers = std::vector<std::int64_t>;

  /// Of *samples* samples the first *first* positions were given out before.
  /// *order* is the permutation, nullptr the natural order; *batches*, if there
  /// are any, are what the positions stand for.
  epoch_order(std::int64_t samples, std::int64_t first, sampler_options options,
              std::shared_ptr<const numbers> order,
              std::shared_ptr<const std::vector<numbers>> batches = nullptr);

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
  std::shared_ptr<const numbers> order_;
  std::shared_ptr<const std::vector<numbers>> batches_;
};

/// Where the next pass of a loop over its data begins, by what its owner was
/// asked for since the last one: a position that was loaded, an epoch that was
/// chosen.
class pass_start {
public:
  enum class place {
    loaded,     ///< At the position that was loaded.
    epoch,      ///< At the start of the same epoch.
    next_epoch, ///< At the start of the next one.
  };

  /// A position was loaded.
  void load() noexcept {
    is_loaded_ = true;
    is_chosen_ = false;
  }

  /// An epoch was chosen, *same* as the current one or another. Returns whether
  /// a loaded position still counts.
  bool choose(bool same) noexcept {
    is_chosen_ = true;
    is_loaded_ = is_loaded_ && same;
    return is_loaded_;
  }

  /// A pass begins, after a complete epoch or not.
  place begin(bool is_complete) noexcept {
    auto result = is_complete && !is_chosen_ ? place::next_epoch
                  : is_loaded_               ? place::loaded
                                             : place::epoch;
    *this = {};
    return result;
  }

private:
  bool is_loaded_ = false;
  bool is_chosen_ = false;
};

} // namespace internal

/// Divides the indices of a dataset among the ranks, batch by batch.
///
/// The order is a pure function of seed and epoch. The cursor counts samples of
/// all ranks, so that an epoch begun with one world size continues exactly
/// with another. Belongs to one thread.
class distributed_sampler {
public:
  /// Throws `train_error` for a negative number of samples, a batch size or
  /// world size below one, a rank outside of the world and an order that does
  /// not fit.
  distributed_sampler(std::int64_t samples, sampler_options options);

  /// Chooses the epoch of the next pass. A position from `load_state` is kept
  /// if it belongs to this epoch.
  void set_epoch(std::uint64_t epoch);

  /// Begins a pass: at the position of `load_state` if that was called since
  /// the last pass, else at the start of the epoch. After a complete epoch the
  /// next one follows if `set_epoch` was not called.
  void start();

  /// This rank's indices of the next batch; nothing at the end of the epoch.
  std::optional<std::vector<std::int64_t>> next();

  /// The rest of the epoch for this rank.
  internal::epoch_order rest() const;

  /// Moves to *cursor*, a value of `epoch_order::cursor_after` or `end`. An
  /// epoch ends at the same position in a world of any size: what padding adds
  /// is not counted, what `tail::drop_last` leaves out is.
  void advance(std::int64_t cursor) noexcept;

  /// Batches of this rank in a whole epoch.
  std::int64_t batches() const;

  sampler_state state() const noexcept { return state_; }

  /// Continues where *x* says at the next `start`. Throws `train_error` for a
  /// cursor beyond the end of this dataset.
  void load_state(const sampler_state& x);

  std::int64_t samples() const noexcept { return samples_; }
  const sampler_options& options() const noexcept { return options_; }

private:
  internal::epoch_order from(std::int64_t cursor) const;
  void make_order(const sampler_state& of) const;
  std::vector<std::int64_t> given_order(std::uint64_t seed,
                                        std::uint64_t epoch) const;
  std::vector<std::vector<std::int64_t>>
  given_batches(std::uint64_t seed, std::uint64_t epoch) const;

  std::int64_t dataset_size_;
  std::int64_t samples_; // of an epoch
  sample_order given_;
  batch_order batches_;
  sampler_options options_;
  sampler_state state_;
  internal::pass_start start_;
  mutable std::shared_ptr<const std::vector<std::int64_t>> order_;
  mutable std::shared_ptr<const std::vector<std::vector<std::int64_t>>>
    whole_batches_;
  mutable sampler_state order_of_; // what the two were made for
};

} // namespace troupe
