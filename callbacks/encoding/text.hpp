#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// How JSON, which has no NaN and no infinities, shows them.
enum class json_non_finite : std::uint8_t {
  text, ///< "NaN", "Infinity", "-Infinity".
  null,
};

} // namespace troupe

namespace troupe::internal {

// JSON for other programs: invalid UTF-8 is replaced (see runtime/text.hpp).
// What must be read back exactly is written by runtime/storage/json.hpp.

/// Appends *x*; integers and doubles exactly.
void append_json(std::string& out, const metric_value& x,
                 json_non_finite how = json_non_finite::text);

/// Appends *x* as an object. `val/loss` becomes `"val":{"loss":…}`, unless
/// there is also a value `val`.
void append_json(std::string& out, const metrics& x,
                 json_non_finite how = json_non_finite::text);

} // namespace troupe::internal
