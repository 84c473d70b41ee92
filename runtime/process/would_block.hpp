#pragma once

#include <cerrno>

namespace troupe::internal {

// What an `errno` says of a call on a descriptor that does not wait.

/// There is no data, or no room, now.
constexpr bool would_block(int code) noexcept {
  return code == EAGAIN; // On Linux, EWOULDBLOCK is the same number.
}

/// The same, or a signal came first: another call may succeed.
constexpr bool is_temporary(int code) noexcept {
  return would_block(code) || code == EINTR;
}

} // namespace troupe::internal
