#pragma once

#include <cmath>
#include <cstdint>
#include <variant>

#include "troupe/runtime/metrics/metric_value.hpp"

namespace troupe {

/// What a tracker is given of NaN and infinities.
enum class non_finite : std::uint8_t {
  send, ///< The nearest that it knows.
  skip, ///< Nothing, as if they had not been reported.
};

/// Whether a tracker is given *x*.
inline bool is_sent(non_finite how, const metric_value& x) {
  const auto* number = std::get_if<double>(&x.variant());
  return how == non_finite::send || !number || std::isfinite(*number);
}

} // namespace troupe
