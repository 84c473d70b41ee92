#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace troupe::internal {

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
