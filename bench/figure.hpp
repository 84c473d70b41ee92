#pragma once

#include <optional>

namespace troupe::bench {

/// What a measurement came to, in the unit of its row.
struct figure {
  double value = 0;
  /// The same of a bare program, measured in the same run; unset where there is
  /// none.
  std::optional<double> reference;

  std::optional<double> ratio() const {
    if (reference)
      return value / *reference;
    return std::nullopt;
  }
};

} // namespace troupe::bench
