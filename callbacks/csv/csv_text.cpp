#include "troupe/callbacks/csv/csv_text.hpp"

#include <cmath>
#include <variant>

#include "troupe/callbacks/encoding/number_text.hpp"
#include "troupe/callbacks/encoding/utf8_text.hpp"

namespace troupe::csv {

namespace {

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (;;) {
    const auto quote = text.find('"');
    append_utf8(out, text.substr(0, quote));
    if (quote == text.npos)
      break;
    out += "\"\"";
    text.remove_prefix(quote + 1);
  }
  out += '"';
}

void append_double(std::string& out, double x) {
  if (std::isfinite(x))
    append_number(out, x);
  else
    out += std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

} // namespace

void append_name(std::string& out, std::string_view name) {
  // A blank at either end is kept by few readers that see no quotes.
  if (name.find_first_of("\",\r\n") != name.npos || name.starts_with(' ')
      || name.ends_with(' '))
    append_quoted(out, name);
  else
    append_utf8(out, name);
}

void append_value(std::string& out, const metric_value& x) {
  const auto& value = x.variant();
  if (const auto* flag = std::get_if<bool>(&value))
    out += *flag ? "true" : "false";
  else if (const auto* integer = std::get_if<std::int64_t>(&value))
    append_number(out, *integer);
  else if (const auto* number = std::get_if<double>(&value))
    append_double(out, *number);
  else
    append_quoted(out, std::get<std::string>(value));
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> result(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      result.back() += line[++i]; // a quote that is meant
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  return result;
}

} // namespace troupe::csv
