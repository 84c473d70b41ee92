#pragma once

#include <charconv>
#include <concepts>
#include <string>

namespace troupe {

/// Appends *x* as the shortest text that reads back as the same number, in any
/// locale. Not for NaN and infinities, which every format spells differently.
template <class T>
  requires std::integral<T> || std::floating_point<T>
void append_number(std::string& out, T x) {
  char text[32];
  out.append(text, std::to_chars(text, text + sizeof(text), x).ptr);
}

} // namespace troupe
