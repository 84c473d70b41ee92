#pragma once

#include <concepts>
#include <cstddef>
#include <string>

namespace troupe {

/// Appends the bytes of *x*, the lowest first.
template <std::unsigned_integral T>
void append_little_endian(std::string& out, T x) {
  char bytes[sizeof(T)];
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes[i] = static_cast<char>(x >> (8 * i));
  out.append(bytes, sizeof(T));
}

} // namespace troupe
