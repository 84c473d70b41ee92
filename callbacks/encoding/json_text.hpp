#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// What stands in JSON for NaN and the infinities, which it cannot say.
enum class json_non_finite : std::uint8_t {
  text, ///< "NaN", "Infinity", "-Infinity".
  null,
};

// JSON as other programs read it; a text that is no UTF-8 loses what is wrong
// in it (see `append_utf8`). What must come back exactly is written by
// runtime/storage/json_writer.hpp.

/// Appends *text* in quotes.
void append_json(std::string& out, std::string_view text);

/// Appends *x*; integers and doubles exactly.
void append_json(std::string& out, const metric_value& x,
                 json_non_finite how = json_non_finite::text);

/// Appends `"name":value,…` without the braces around it. `val/loss` becomes
/// `"val":{"loss":…}`, unless there is a value `val` too.
void append_json_members(std::string& out, const metrics& x,
                         json_non_finite how = json_non_finite::text);

/// The same as an object.
void append_json(std::string& out, const metrics& x,
                 json_non_finite how = json_non_finite::text);

} // namespace troupe
