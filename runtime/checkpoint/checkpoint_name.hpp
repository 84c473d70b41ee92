#pragma once

#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Refuses a name that is not one path component of at most 200 bytes, has a
/// control character, or begins with a dot (those are the run's own).
expected<void> validate_checkpoint_name(const std::string& name);

/// Why a second checkpoint cannot be called *name*.
tl::unexpected<error> name_is_taken(const std::string& name);

} // namespace troupe
