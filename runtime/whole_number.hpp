#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

/// Whether *text* is one or more decimal digits, and nothing else.
constexpr bool is_digits(std::string_view text) noexcept {
  return !text.empty() && std::ranges::all_of(text, is_digit);
}

/// Whether *text* is one or more hexadecimal digits, as `append_hex` writes
/// them: in lower case.
constexpr bool is_hex(std::string_view text) noexcept {
  auto is_hex_digit = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f');
  };
  return !text.empty() && std::ranges::all_of(text, is_hex_digit);
}

/// The number that all of *text* spells in *base*, in any locale; nothing if
/// there is anything else in it, such as a blank or `+`, or if the number does
/// not fit.
template <std::integral T>
std::optional<T> whole_number(std::string_view text, int base = 10) noexcept {
  T result{};
  auto end = text.data() + text.size();
  auto [last, problem] = std::from_chars(text.data(), end, result, base);
  if (problem != std::errc{} || last != end)
    return std::nullopt;
  return result;
}

} // namespace troupe::internal
