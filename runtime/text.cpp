#include "troupe/runtime/text.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

#include <utf8.h>

#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

// Length of the valid UTF-8 that *text* begins with.
std::size_t valid_length(std::string_view text) noexcept {
  auto end = utf8::find_invalid(text.begin(), text.end());
  return static_cast<std::size_t>(end - text.begin());
}

// Length of the invalid sequence that *text* begins with: as many bytes as some
// continuation would make a character of, or one.
std::size_t invalid_length(std::string_view text) noexcept {
  auto begins_character = [text](std::size_t size, std::size_t of) {
    char bytes[] = {'\x80', '\x80', '\x80', '\x80'};
    std::copy_n(text.data(), size, bytes);
    return utf8::is_valid(bytes, bytes + of);
  };
  if (text.size() >= 3 && begins_character(3, 4))
    return 3;
  if (text.size() >= 2 && (begins_character(2, 3) || begins_character(2, 4)))
    return 2;
  return 1;
}

// *c* as JSON has it between quotes.
void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      out += "\\u00";
      append_hex(out, {&c, 1});
  }
}

} // namespace

utf8_character first_utf8_character(std::string_view text) noexcept {
  if (valid_length(text.substr(0, 4)) == 0)
    return {text.substr(0, 1)};
  auto end = text.data();
  auto code = utf8::unchecked::next(end);
  auto size = static_cast<std::size_t>(end - text.data());
  return {text.substr(0, size), static_cast<char32_t>(code), true};
}

bool is_utf8(std::string_view text) noexcept {
  return valid_length(text) == text.size();
}

void append_utf8(std::string& out, std::string_view text) {
  for (;;) {
    auto valid = valid_length(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty())
      return;
    out += "\xef\xbf\xbd";
    text.remove_prefix(invalid_length(text));
  }
}

std::string utf8_text(std::string_view text) {
  std::string result;
  append_utf8(result, text);
  return result;
}

std::string_view cut_text(std::string_view text, std::size_t size) noexcept {
  if (text.size() <= size)
    return text;
  while (size > 0 && !begins_utf8_character(text[size]))
    --size;
  return text.substr(0, size);
}

std::string cut_reason(std::string text) {
  auto size = text.size();
  if (size <= max_reason_size)
    return text;
  text.resize(cut_text(text, max_reason_size).size());
  return concat(text, "… (cut; it has ", size, " bytes)");
}

std::string in_lower_case(std::string_view text) {
  std::string result{text};
  for (auto& c : result)
    c = in_lower_case(c);
  return result;
}

void append_hex(std::string& out, std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  for (unsigned char c : bytes) {
    out += digits[c >> 4];
    out += digits[c & 0xf];
  }
}

namespace {

using to_parts = std::tm* (*) (const std::time_t*, std::tm*);

std::string time_text(std::chrono::system_clock::time_point time,
                      const char* format, to_parts convert) {
  auto seconds = std::chrono::system_clock::to_time_t(
    std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts{};
  convert(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof(text), format, &parts)};
}

} // namespace

std::string utc_text(std::chrono::system_clock::time_point time,
                     const char* format) {
  return time_text(time, format, ::gmtime_r);
}

std::string local_text(std::chrono::system_clock::time_point time,
                       const char* format) {
  return time_text(time, format, ::localtime_r);
}

namespace {

constexpr auto timestamp_format = "%Y-%m-%dT%H:%M:%SZ";

} // namespace

std::string timestamp(std::chrono::system_clock::time_point time) {
  return utc_text(time, timestamp_format);
}

std::optional<std::chrono::system_clock::time_point>
parse_timestamp(const std::string& text) {
  return parse_utc(text, timestamp_format);
}

void append_json_string(std::string& out, std::string_view text) {
  auto is_special = [](unsigned char c) {
    return c < 0x20 || c == '"' || c == '\\' || c == 0x7f;
  };
  out += '"';
  for (;;) {
    auto special = std::ranges::find_if(text, is_special);
    append_utf8(out, {text.begin(), special});
    if (special == text.end())
      break;
    append_escaped(out, *special);
    text.remove_prefix(static_cast<std::size_t>(special - text.begin()) + 1);
  }
  out += '"';
}

std::string_view non_finite_words::of(double x) const noexcept {
  return std::isnan(x) ? nan : x > 0 ? infinity : minus_infinity;
}

std::optional<double>
non_finite_words::value(std::string_view word) const noexcept {
  using limits = std::numeric_limits<double>;
  if (word == nan)
    return limits::quiet_NaN();
  if (word == infinity)
    return limits::infinity();
  if (word == minus_infinity)
    return -limits::infinity();
  return std::nullopt;
}

void append_plain(std::string& out, double x) {
  if (std::isfinite(x))
    append_number(out, x);
  else
    out += plain_words.of(x);
}

void append_real(std::string& out, double x) {
  auto begin = out.size();
  append_number(out, x);
  if (out.find_first_of(".e", begin) == std::string::npos)
    out += ".0";
}

} // namespace troupe::internal
