#pragma once

#include <cstdint>
#include <string_view>

#include <c10/util/StringUtil.h>

#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

/// Throws a `train_error` for an invalid argument; *why* and *more*, texts and
/// numbers, form one sentence.
template <class... Args>
[[noreturn]] void throw_invalid_argument(std::string_view why,
                                         const Args&... more) {
  throw train_error{{ec::invalid_argument, c10::str(why, more...)}};
}

/// The same unless *value*, which is called *name*, is at least *least*.
inline void require_at_least(std::int64_t least, std::int64_t value,
                             std::string_view name) {
  if (value < least)
    throw_invalid_argument(name, " is ", value, ", but must be at least ",
                           least);
}

} // namespace troupe::internal
