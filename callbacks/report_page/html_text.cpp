#include "troupe/callbacks/report_page/html_text.hpp"

#include <charconv>
#include <cmath>

#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

namespace {

constexpr std::string_view no_character = "\xEF\xBF\xBD"; // U+FFFD

bool is_control(char c) {
  auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
}

/// Length of the escape sequence at the begin of *x*, which is an ESC: a CSI
/// (colours, cursor), an OSC (titles, links) or a short one.
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

std::string script_text(std::string_view text) {
  std::string json;
  append_json(json, std::string_view{clean_text(text)});
  std::string result;
  for (auto c : json)
    if (c == '<')
      result += "\\u003c"; // no `</script>` and no `<!--`
    else
      result += c;
  return result;
}

std::string number_text(double x, int digits) {
  if (!std::isfinite(x))
    return "null";
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), x,
                           std::chars_format::general, digits)
               .ptr;
  return {buffer, end};
}

html_text& html_text::text(std::string_view text) {
  for (auto c : clean_text(text))
    switch (c) {
      case '&':
        out_ += "&amp;";
        break;
      case '<':
        out_ += "&lt;";
        break;
      case '>':
        out_ += "&gt;";
        break;
      case '"':
        out_ += "&quot;";
        break;
      case '\'':
        out_ += "&#39;";
        break;
      default:
        out_ += c;
    }
  return *this;
}

html_text& html_text::element(std::string_view tag, std::string_view content) {
  return raw("<").raw(tag).raw(">").text(content).raw("</").raw(tag).raw(">");
}

} // namespace troupe
