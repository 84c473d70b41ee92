#include "troupe/callbacks/report_page/page_text.hpp"

#include <charconv>
#include <cmath>

#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view no_character = "\xEF\xBF\xBD"; // U+FFFD

bool is_control(char c) {
  auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
}

/// Length of the escape sequence at the begin of *x*, which is an ESC: a CSI
/// (colors, cursor), an OSC (titles, links) or a short one.
std::size_t escape_length(std::string_view x) {
  auto within = [&x](std::size_t i) { return i < x.size(); };
  if (!within(1))
    return 1;
  std::size_t i = 2;
  if (x[1] == '[') {
    while (within(i) && x[i] >= 0x20 && x[i] < 0x40)
      ++i;
    return within(i) && x[i] >= 0x40 ? i + 1 : i;
  }
  if (x[1] == ']') {
    while (within(i) && x[i] != '\a' && x[i] != '\x1b' && x[i] != '\n')
      ++i;
    if (within(i) && x[i] == '\a')
      return i + 1;
    return within(i + 1) && x[i] == '\x1b' && x[i + 1] == '\\' ? i + 2 : i;
  }
  return x[1] >= 0x20 && x[1] < 0x7f ? 2 : 1;
}

} // namespace

std::string clean_text(std::string_view text) {
  std::string result;
  for (auto c : utf8_text(text))
    if (is_control(c))
      result += no_character;
    else
      result += c;
  return result;
}

std::string without_terminal_codes(std::string_view text) {
  std::string result;
  std::size_t line = 0; // where the last line of the result begins
  bool overwrite = false;
  while (!text.empty()) {
    auto c = text[0];
    if (c == '\x1b') {
      text.remove_prefix(escape_length(text));
      continue;
    }
    text.remove_prefix(1);
    if (c == '\r') {
      overwrite = true; // unless a newline follows
      continue;
    }
    if (overwrite && c != '\n')
      result.resize(line);
    overwrite = false;
    if (c == '\b') {
      if (result.size() > line)
        result.pop_back();
      continue;
    }
    result += c;
    if (c == '\n')
      line = result.size();
  }
  return result;
}

std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit)
    return std::string{text};
  return std::string{cut_text(text, limit)} + " …";
}

std::string html_text(std::string_view text) {
  std::string result;
  for (auto c : clean_text(text))
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  return result;
}

std::string script_json(std::string_view json) {
  std::string result;
  result.reserve(json.size());
  for (;;) {
    auto end = json.find('<');
    result += json.substr(0, end);
    if (end == json.npos)
      return result;
    result += "\\u003c";
    json.remove_prefix(end + 1);
  }
}

void append_text(std::string& out, std::string_view text) {
  json::append(out, std::string_view{clean_text(text)});
}

void append_name(std::string& out, std::string_view name) {
  append_text(out, shortened(name, max_name_bytes));
}

void append_number(std::string& out, double x, int digits) {
  if (!std::isfinite(x)) {
    out += "null";
    return;
  }
  char text[32];
  auto end = std::to_chars(text, text + sizeof(text), x,
                           std::chars_format::general, digits)
               .ptr;
  out.append(text, end);
}

double rounded(double x, double per) {
  auto result = std::round(x * per) / per;
  return std::isfinite(result) ? result : x;
}

void append_seconds(std::string& out, double x) {
  append_number(out, rounded(x, 1e3), 12);
}

} // namespace troupe::internal
