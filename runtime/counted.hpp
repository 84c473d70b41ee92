#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

/// "1 report", "2 reports".
inline std::string counted(std::uint64_t n, const char* noun) {
  return concat(n, ' ', noun, (n == 1 ? "" : "s"));
}

} // namespace troupe::internal
