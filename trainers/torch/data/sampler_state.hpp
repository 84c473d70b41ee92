#pragma once

#include <cstdint>

namespace troupe {

/// Where an epoch stands; equal on all ranks after the same number of steps.
struct sampler_state {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::int64_t cursor = 0; ///< Samples of the epoch's order that all ranks
                           ///< together have been given, each counted once.

  bool operator==(const sampler_state&) const = default;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(seed, epoch, cursor);
  }
};

} // namespace troupe
