#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troupe/callbacks/report_page/html_text.hpp"
#include "troupe/callbacks/report_page/journal_digest.hpp"

namespace troupe {

// The parts that the sections of a report page are made of.

/// *x* as UTC, for people and for programs.
html_text& append_time(html_text& out, journal_digest::time_point x);

/// "1 line", "2 lines".
std::string count_text(std::size_t count, const char* what);

/// A span as people read it: "350 µs", "1.2 s".
std::string seconds_text(double x);

void begin_section(html_text& out, const char* id, const char* title);
void end_section(html_text& out);

/// A table that scrolls within its box if it is wide.
void begin_table(html_text& out, const char* label,
                 const std::vector<std::string>& columns);
void end_table(html_text& out);

/// Begins a row; its first cell is its head.
html_text& row_head(html_text& out, std::string_view name);
html_text& number_cell(html_text& out, std::string_view text);

/// A table of names and values.
void name_values_table(
  html_text& out, const char* label,
  const std::vector<std::pair<std::string, std::string>>& all);

} // namespace troupe
