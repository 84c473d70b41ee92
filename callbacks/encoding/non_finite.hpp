#pragma once

#include <cstdint>

namespace troupe {

/// What a tracker is given of NaN and infinities.
enum class non_finite : std::uint8_t {
  send, ///< The nearest that it knows.
  skip, ///< Nothing, as if they had not been reported.
};

} // namespace troupe
