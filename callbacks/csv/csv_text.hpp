#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/metrics/metric_value.hpp"

namespace troupe::csv {

// RFC 4180 with lines that end in "\n" alone, in UTF-8.

/// Appends a column's name, in quotes where it needs them.
void append_name(std::string& out, std::string_view name);

/// Appends a value: `true`, `false`, numbers exactly, `nan`, `inf`, `-inf`, a
/// text always in quotes, so that no text is taken for a number or for a cell
/// that is missing.
void append_value(std::string& out, const metric_value& x);

/// The cells of one line without its end.
std::vector<std::string> cells_of(std::string_view line);

/// Finds where lines end in text that comes in pieces; a line end in quotes is
/// part of a cell.
class line_scanner {
public:
  /// Whether *c*, the next character, ends a line.
  bool ends_line(char c) noexcept {
    quoted_ ^= c == '"';
    return c == '\n' && !quoted_;
  }

private:
  bool quoted_ = false;
};

} // namespace troupe::csv
