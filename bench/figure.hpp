#pragma once

#include <optional>

namespace troupe::internal::bench {

/// The result of a measurement, in the unit of its row.
struct figure {
  double value = 0;
  /// The same for a bare program measured in the same run; unset if there is
  /// none.
  std::optional<double> reference;

  std::optional<double> ratio() const {
    if (reference)
      return value / *reference;
    return std::nullopt;
  }
};

} // namespace troupe::internal::bench
