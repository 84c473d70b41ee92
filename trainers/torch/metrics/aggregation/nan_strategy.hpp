#pragma once

#include <variant>

namespace troupe {

/// What a metric of plain values does about NaN.
enum class on_nan {
  warn,    ///< Leaves it out, and says so when the value is made.
  ignore,  ///< Leaves it out.
  error,   ///< Refuses the update, which then changes nothing.
  disable, ///< Does not look: NaN goes where arithmetic takes it.
};

/// That, or a number that takes the place of NaN.
using nan_strategy = std::variant<on_nan, double>;

} // namespace troupe
