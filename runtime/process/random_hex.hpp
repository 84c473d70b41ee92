#pragma once

#include <cstddef>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// *bytes* (at most 256) of the system's random numbers as hexadecimal digits,
/// good enough for a secret.
expected<std::string> random_hex(std::size_t bytes);

} // namespace troupe::internal
