#pragma once

#include <type_traits>

namespace troupe::internal {

/// Writes or reads *x* as its number. Numbers above that of *last*, the enum's
/// last value, are refused.
template <class Inspector, class Enum>
bool inspect_enum(Inspector& f, Enum& x, Enum last) {
  using number = std::underlying_type_t<Enum>;
  auto get = [&x] { return static_cast<number>(x); };
  auto set = [&x, last](number value) {
    x = static_cast<Enum>(value);
    return value <= static_cast<number>(last);
  };
  return f.apply(get, set);
}

} // namespace troupe::internal
