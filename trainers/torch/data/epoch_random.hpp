#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Generator.h>

// The random choices of an epoch: functions of seed and epoch only, so that any
// number of threads and ranks sees the same.
namespace troupe {

namespace internal {

/// The numbers 0 .. *size* - 1 in an order that depends only on *seed* and
/// *epoch*: the same on every machine, with every compiler and standard
/// library.
///
/// Fisher-Yates driven by the counter-based generator SplitMix64; about 10 ns a
/// number.
std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed,
                                      std::uint64_t epoch);

} // namespace internal

/// The samples of an epoch, in order, for all ranks together: indices of a
/// dataset, each as often as wanted. A function of *seed* and *epoch* alone
/// with as many samples in every epoch; the same on all ranks.
using sample_order = std::function<std::vector<std::int64_t>(
  std::uint64_t seed, std::uint64_t epoch)>;

/// The batches of an epoch, in order, for all ranks together: the indices of
/// each. In step k of *n* ranks, rank r gets batch `k * n + r`. A function of
/// *seed* and *epoch* alone with as many batches in every epoch; the same on
/// all ranks.
using batch_order = std::function<std::vector<std::vector<std::int64_t>>(
  std::uint64_t seed, std::uint64_t epoch)>;

/// *count* samples per epoch, each drawn with a probability in proportion to
/// its weight, with replacement: Python's `WeightedRandomSampler`. Throws
/// `train_error` for weights that are negative, not finite or all zero.
sample_order weighted_order(std::vector<double> weights, std::int64_t count);

/// Random numbers for the samples of an epoch: one LibTorch generator each,
/// whose numbers depend only on seed, epoch and the sample's index. A sample is
/// the same whichever thread of whichever rank reads it, and the model has
/// LibTorch's default generator for itself.
class sample_generators {
public:
  sample_generators(std::uint64_t seed, std::uint64_t epoch) noexcept;

  /// A new generator for sample *index*; takes a few microseconds.
  at::Generator of(std::int64_t index) const;

private:
  std::uint64_t key_;
};

} // namespace troupe
