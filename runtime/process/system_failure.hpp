#pragma once

#include <cerrno>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// "<what>: <what the system says about errno>" as a failure.
tl::unexpected<error> system_failure(ec code, std::string what,
                                     int error_number = errno);

} // namespace troupe
