#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe::json {

// Appends JSON to a string without building a document first; the journal
// writes tens of thousands of lines a second this way. Types survive exactly:
// a double always has a point or an exponent, what JSON cannot say is an
// object: {"float":"nan"}, "inf", "-inf"; {"bytes":"<hex>"} for a text that is
// not UTF-8. A name that is not UTF-8 becomes "\u0000<hex>": no valid name
// holds a control character.

void append(std::string& out, std::string_view text);
void append(std::string& out, std::uint64_t x);
void append(std::string& out, const metric_value& x);
void append(std::string& out, const metrics& x);

/// A time as whole microseconds.
void append_us(std::string& out, double seconds);

} // namespace troupe::json
