#pragma once

#include <string>
#include <string_view>

namespace troupe::internal {

/// *text* as one word of a POSIX shell.
inline std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (char c : text) {
    if (c == '\'')
      result += "'\\''";
    else
      result += c;
  }
  return result + '\'';
}

} // namespace troupe::internal
