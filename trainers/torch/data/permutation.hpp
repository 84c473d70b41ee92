#pragma once

#include <cstdint>
#include <vector>

namespace troupe {

/// The numbers 0 .. *size* - 1 in an order that depends on *seed* and *epoch*
/// alone: equal on every machine, for every compiler and standard library.
///
/// Fisher-Yates driven by the counter-based generator SplitMix64; about 10 ns a
/// number.
std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed,
                                      std::uint64_t epoch);

} // namespace troupe
