#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::internal {

// The texts and numbers of a report page, all of which come from outside.

/// *text* as valid UTF-8 without control characters but tab and newline:
/// broken bytes and control characters become U+FFFD.
std::string clean_text(std::string_view text);

/// What a terminal would show of *text* in the end: without colors and other
/// escape sequences; of a line that was overwritten (`\r`) the last version.
std::string without_terminal_codes(std::string_view text);

/// Longest name, in bytes, that a page shows: of a metric, a text, a setting.
inline constexpr std::size_t max_name_bytes = 200;

/// The first *limit* bytes of *text*, with an ellipsis if that is not all; no
/// character is cut in two.
std::string shortened(std::string_view text, std::size_t limit);

/// *text* as HTML that shows it, cleaned and with its markup escaped.
std::string html_text(std::string_view text);

/// *json* as it may stand inside a `<script>`: each `<` is escaped, so that
/// nothing in it ends the element or begins a comment. The same JSON, as only
/// texts hold a `<`.
std::string script_json(std::string_view json);

// Elements of the page's data, as JSON.

/// Appends *text*, cleaned.
void append_text(std::string& out, std::string_view text);

/// Appends *name*, cleaned and shortened to `max_name_bytes`.
void append_name(std::string& out, std::string_view name);

/// Appends *x* with up to *digits* significant digits; `null` if it is not
/// finite.
void append_number(std::string& out, double x, int digits);

/// Appends *x* in whole milliseconds.
void append_seconds(std::string& out, double x);

/// *x* in whole parts, *per* to one; the largest numbers stay as they are.
double rounded(double x, double per);

} // namespace troupe::internal
