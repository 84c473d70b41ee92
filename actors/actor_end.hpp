#pragma once

#include <exception>
#include <string>

#include <caf/error.hpp>

namespace troupe {

/// Why an actor ended, for people: the sentence of one of ours, CAF's own text
/// of another.
std::string text_of(const caf::error& x);

/// What a handler threw, as the reason that its actor ends for.
caf::error from_exception(std::exception_ptr& x);

} // namespace troupe
