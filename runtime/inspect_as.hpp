#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

// What travels between processes as something else.

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

/// The field *name* of an object: the path *x*, as text.
template <class Inspector, class Path>
auto path_field(Inspector& f, std::string_view name, Path& x) {
  auto get = [&x] { return x.string(); };
  auto set = [&x](std::string text) {
    x = std::move(text);
    return true;
  };
  return f.field(name, get, set);
}

} // namespace troupe::internal
