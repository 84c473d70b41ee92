#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Generator.h>

// What an epoch draws: functions of seed and epoch alone, so that any number of
// threads and ranks sees the same.
namespace troupe {

/// The numbers 0 .. *size* - 1 in an order that depends on *seed* and *epoch*
/// alone: equal on every machine, for every compiler and standard library.
///
/// Fisher-Yates driven by the counter-based generator SplitMix64; about 10 ns a
/// number.
std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed,
                                      std::uint64_t epoch);

/// Random numbers for the samples of an epoch: a generator of LibTorch each,
/// whose numbers depend on seed, epoch and the sample's index alone. A sample
/// is the same whichever thread of whichever rank reads it, and LibTorch's
/// default generator is left to the model.
class sample_generators {
public:
  sample_generators(std::uint64_t seed, std::uint64_t epoch) noexcept;

  /// A new generator for sample *index*; takes a few microseconds.
  at::Generator of(std::int64_t index) const;

private:
  std::uint64_t key_;
};

} // namespace troupe
