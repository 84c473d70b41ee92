#pragma once

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace troupe::internal {

/// Longest exception text that is sent or stored.
inline constexpr std::size_t max_reason_size = std::size_t{64} * 1024;

/// A character of a text; one byte that belongs to none if it is not valid.
struct utf8_character {
  std::string_view bytes;
  char32_t code = 0;
  bool valid = false;
};

/// Whether *c*, a byte of valid UTF-8, is the first one of its character.
constexpr bool begins_utf8_character(char c) noexcept {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

/// The first character of *text*, which must not be empty.
utf8_character first_utf8_character(std::string_view text) noexcept;

/// Returns whether *text* is valid: overlong forms, surrogates and code points
/// above U+10FFFF are not.
bool is_utf8(std::string_view text) noexcept;

/// Appends *text*; each invalid sequence of bytes becomes U+FFFD, by Unicode's
/// "substitution of maximal subparts".
void append_utf8(std::string& out, std::string_view text);

/// *text* with invalid UTF-8 replaced as in `append_utf8`.
std::string utf8_text(std::string_view text);

/// The first *size* bytes of *text*, or fewer: cut between two UTF-8
/// characters.
std::string_view cut_text(std::string_view text, std::size_t size) noexcept;

/// *text*, cut to `max_reason_size`; a cut text ends with its full length.
std::string cut_reason(std::string text);

// Characters of ASCII, independent of the locale.

constexpr bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

constexpr char in_lower_case(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// *text* with the letters of ASCII in lower case.
std::string in_lower_case(std::string_view text);

/// *text* without the characters of *blanks* at its ends.
constexpr std::string_view
without_blanks(std::string_view text,
               std::string_view blanks = " \t\r") noexcept {
  auto begin = text.find_first_not_of(blanks);
  if (begin == text.npos)
    return text.substr(text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

/// Appends *x* as the shortest text that reads back as the same number, in any
/// locale. Not for NaN and infinities: every format spells them differently.
template <class T>
  requires std::integral<T> || std::floating_point<T>
void append_number(std::string& out, T x) {
  char text[32];
  out.append(text, std::to_chars(text, text + sizeof(text), x).ptr);
}

/// Appends *x*: text, a character, or an integer in decimal digits.
template <class T>
void append_part(std::string& out, const T& x) {
  if constexpr (std::is_same_v<T, char>) {
    out += x;
  } else if constexpr (std::integral<T>) {
    static_assert(!std::is_same_v<T, bool>, "a text for true and false");
    append_number(out, x);
  } else {
    out += std::string_view{x};
  }
}

/// All *parts*, one after the other: texts, characters and integers.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string result;
  (append_part(result, parts), ...);
  return result;
}

/// *x* for a sentence, rounded down: "30 s", "1.5 s" below 10 s, "30 ms" below
/// a second.
template <class Count, class Unit>
std::string duration_text(std::chrono::duration<Count, Unit> x) {
  auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(x).count();
  if (ms < 1000)
    return concat(ms, " ms");
  auto tenths = ms < 10'000 ? ms / 100 % 10 : 0;
  return tenths == 0 ? concat(ms / 1000, " s")
                     : concat(ms / 1000, '.', tenths, " s");
}

/// Appends *item* to *list*, after *separator* if the list is not empty.
template <class Item>
void append_item(std::string& list, const Item& item,
                 std::string_view separator = ", ") {
  if (!list.empty())
    list += separator;
  append_part(list, item);
}

/// What *part_of* makes of each of *items*, texts, characters or integers, with
/// *separator* between them.
template <class Range, class PartOf = std::identity>
std::string joined(Range&& items, std::string_view separator = ", ",
                   PartOf part_of = {}) {
  std::string result;
  auto between = std::string_view{};
  for (auto&& item : items) {
    result += between;
    append_part(result, std::invoke(part_of, item));
    between = separator;
  }
  return result;
}

/// The first *most* of *items*, and how many more there are: "a, b and 3 more".
template <class Range>
std::string listed(const Range& items, std::size_t most) {
  std::string result;
  std::size_t shown = 0;
  for (auto& item : items) {
    if (shown == most)
      return concat(result, " and ", items.size() - most, " more");
    result += shown++ > 0 ? ", " : "";
    append_part(result, item);
  }
  return result;
}

/// Appends two lowercase hexadecimal digits for each byte of *bytes*.
void append_hex(std::string& out, std::string_view bytes);

/// Appends all lowercase hexadecimal digits of *x*, leading zeros included.
template <std::unsigned_integral T>
void append_hex(std::string& out, T x) {
  char bytes[sizeof(T)];
  for (auto i = sizeof(T); i > 0; x = static_cast<T>(x >> 8))
    bytes[--i] = static_cast<char>(x & 0xff);
  append_hex(out, {bytes, sizeof(T)});
}

/// *time* in UTC, as strftime's *format* shows it, in at most 63 bytes.
std::string utc_text(std::chrono::system_clock::time_point time,
                     const char* format);

/// The same in the host's time zone.
std::string local_text(std::chrono::system_clock::time_point time,
                       const char* format);

/// *time* in UTC as files of a run have it: "2026-03-04T01:01:01Z".
std::string timestamp(std::chrono::system_clock::time_point time);

/// The time that *text*, a `timestamp`, names; nothing for any other text.
std::optional<std::chrono::system_clock::time_point>
parse_timestamp(const std::string& text);

/// Appends *x*, a variant of a flag, an integer, a floating-point number and a
/// text; the latter two as *append_real* and *append_text* do.
template <class Variant, class Real, class Text>
void append_scalar(std::string& out, const Variant& x, Real append_real,
                   Text append_text) {
  if (auto flag = std::get_if<bool>(&x))
    out += *flag ? "true" : "false";
  else if (auto integer = std::get_if<std::int64_t>(&x))
    append_number(out, *integer);
  else if (auto number = std::get_if<double>(&x))
    append_real(*number);
  else
    append_text(std::string_view{std::get<3>(x)});
}

/// Appends *text* in quotes, escaped for JSON, with invalid UTF-8 replaced as
/// in `append_utf8`.
void append_json_string(std::string& out, std::string_view text);

/// What a format calls the numbers that are not finite.
struct non_finite_words {
  std::string_view nan;
  std::string_view infinity;
  std::string_view minus_infinity;

  /// The word for *x*, which is not finite.
  std::string_view of(double x) const noexcept;

  /// The number that *word* stands for.
  std::optional<double> value(std::string_view word) const noexcept;
};

/// Of plain text, as C's `printf` and NumPy write them.
inline constexpr non_finite_words plain_words{"nan", "inf", "-inf"};

/// Of JSON and JSON-like text, as JavaScript and Python's `json` write them.
inline constexpr non_finite_words json_words{"NaN", "Infinity", "-Infinity"};

/// As `append_number`; NaN and infinities become nan, inf and -inf.
void append_plain(std::string& out, double x);

/// As `append_number`, always with a point or an exponent: readers that tell
/// integers from floating-point numbers take it for the latter.
void append_real(std::string& out, double x);

} // namespace troupe::internal
