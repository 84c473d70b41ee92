#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// Appends *x* as the shortest text that reads back as the same number, in any
/// locale. Not for NaN and infinities: every format spells them differently.
template <class T>
  requires std::integral<T> || std::floating_point<T>
void append_number(std::string& out, T x) {
  char text[32];
  out.append(text, std::to_chars(text, text + sizeof(text), x).ptr);
}

/// The bytes at the start of a text that form one code point or, if invalid,
/// one maximal subpart of a code point.
struct utf8_sequence {
  std::size_t size = 0;
  bool valid = false;
};

/// The first sequence of *text*, which must not be empty.
utf8_sequence first_utf8_sequence(std::string_view text) noexcept;

/// Appends *text*; each invalid sequence of bytes becomes U+FFFD, by Unicode's
/// "substitution of maximal subparts".
void append_utf8(std::string& out, std::string_view text);

/// *text* with invalid UTF-8 replaced as in `append_utf8`.
std::string utf8_text(std::string_view text);

/// How JSON, which has no NaN and no infinities, shows them.
enum class json_non_finite : std::uint8_t {
  text, ///< "NaN", "Infinity", "-Infinity".
  null,
};

// JSON for other programs: invalid UTF-8 is replaced (see `append_utf8`). What
// must be read back exactly is written by runtime/storage/json_writer.hpp.

/// Appends *text* in quotes.
void append_json(std::string& out, std::string_view text);

/// Appends *x*; integers and doubles exactly.
void append_json(std::string& out, const metric_value& x,
                 json_non_finite how = json_non_finite::text);

/// Appends `"name":value,…` without the enclosing braces. `val/loss` becomes
/// `"val":{"loss":…}`, unless there is also a value `val`.
void append_json_members(std::string& out, const metrics& x,
                         json_non_finite how = json_non_finite::text);

/// The same, as an object.
void append_json(std::string& out, const metrics& x,
                 json_non_finite how = json_non_finite::text);

} // namespace troupe
