#pragma once

#include <cstdint>

namespace troupe {

/// Makes two runs of the same program on the same kind of machine, with the
/// same number of ranks and threads, give the same bytes: seeds the generators
/// of LibTorch and C, asks for deterministic algorithms, and fixes the number
/// of threads. Call it first in the train loop; it costs some speed. An
/// operation without a deterministic algorithm throws from then on.
void enable_reproducibility(std::uint64_t seed = 0);

} // namespace troupe
