#pragma once

#include <algorithm>
#include <string_view>

namespace troupe::internal {

/// Whether *name*, which a user chose, can be one component of a path: no `/`,
/// no control characters, not `.` or `..`, at most 200 bytes, and not empty.
inline bool is_path_component(std::string_view name) {
  auto bad = [](unsigned char c) { return c == '/' || c < 0x20 || c == 0x7f; };
  return !name.empty() && name != "." && name != ".." && name.size() <= 200
         && std::ranges::none_of(name, bad);
}

} // namespace troupe::internal
