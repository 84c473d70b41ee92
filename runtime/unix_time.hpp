#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

namespace troupe::internal {

/// Milliseconds since 1970, UTC.
inline std::int64_t unix_ms(std::chrono::system_clock::time_point x) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
           x.time_since_epoch())
    .count();
}

/// The same in microseconds.
inline std::int64_t unix_us(std::chrono::system_clock::time_point x) {
  return std::chrono::duration_cast<std::chrono::microseconds>(
           x.time_since_epoch())
    .count();
}

/// Seconds since 1970, UTC.
inline double unix_seconds(std::chrono::system_clock::time_point x) {
  return std::chrono::duration<double>(x.time_since_epoch()).count();
}

/// *text* parsed as a time in UTC by strptime's *format*; nothing if it does
/// not match.
inline std::optional<std::chrono::sys_seconds>
parse_utc(const std::string& text, const char* format) {
  std::tm parts{};
  auto end = ::strptime(text.c_str(), format, &parts);
  if (end != text.c_str() + text.size())
    return std::nullopt;
  return std::chrono::sys_seconds{std::chrono::seconds{::timegm(&parts)}};
}

} // namespace troupe::internal
