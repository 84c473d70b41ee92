#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <caf/error.hpp>

#include "troupe/actors/protocol/type_ids.hpp"

namespace troupe {

bool from_string(std::string_view text, ec& x);

/// For CAF 0.18, which has string views of its own.
template <class StringView>
bool from_string(const StringView& text, ec& x) {
  return from_string(std::string_view{text.data(), text.size()}, x);
}

bool from_integer(std::uint8_t value, ec& x);

/// *x* as the answer of an actor.
caf::error to_caf(const error& x);

/// The error answer of an actor as an `error`. CAF's own errors keep their
/// text; a broken connection is `ec::protocol`, a request that took too long
/// `ec::timeout`.
error from_caf(const caf::error& x);

namespace internal {

/// Why an actor ended, human-readable: the sentence of our error, or CAF's
/// text.
std::string text_of(const caf::error& x);

/// The exception of a handler, as the exit reason of its actor.
caf::error from_exception(std::exception_ptr& x);

/// Whether *x* has a code of ours, and so is the answer of an actor: CAF's own
/// say that it is gone or does not answer.
bool is_ours(const caf::error& x);

/// With what the actors of a run end that is to be resumed; *why* says so.
/// Agents of other hosts are to be started again.
caf::error unfinished(std::string why);
bool says_unfinished(const caf::error& x);

} // namespace internal

} // namespace troupe
