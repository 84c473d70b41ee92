#pragma once

#include <string_view>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// The values of a JSON object by name, nested ones as `outer/inner`, elements
/// of lists as `list/0`. Knows the bare `NaN` and `Infinity` that cereal
/// writes. A text that is no JSON object gives none.
metrics config_values(std::string_view json);

} // namespace troupe
