#pragma once

#include <exception>
#include <string>

#include <caf/error.hpp>

namespace troupe {

/// Why an actor ended, for people: the sentence of our error, or CAF's
/// text.
std::string text_of(const caf::error& x);

/// The exception of a handler, as the exit reason of its actor.
caf::error from_exception(std::exception_ptr& x);

} // namespace troupe
