#pragma once

#include <string_view>

#include "troupe/runtime/error.hpp"

namespace troupe::internal::test {

/// Whether *text* occurs in the sentence of *x*.
inline bool mentions(const error& x, std::string_view text) {
  return x.message.find(text) != std::string::npos;
}

} // namespace troupe::internal::test
