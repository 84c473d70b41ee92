#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Columns that *text* (UTF-8) takes on a terminal: wide characters take two,
/// combining ones none.
int display_width(std::string_view text);

/// *text* on one line of at most *columns* columns: control characters and
/// broken UTF-8 become '?', newlines a space; what does not fit is cut between
/// characters and ends in "…".
std::string fit_to_line(std::string_view text, int columns);

} // namespace troupe
