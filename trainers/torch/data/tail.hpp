#pragma once

#include <cstdint>

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

} // namespace troupe
