#pragma once

#include <atomic>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

namespace detail {

/// Whether any failpoint is armed. A load of it is all that an unarmed one
/// costs.
extern std::atomic<bool> failpoints_armed;

int hit_failpoint(const char* name);

} // namespace detail

/// A named point at which a test ends the process or makes a system call fail.
///
/// Armed by the environment variable `TROUPE_FAILPOINT=name[:n[+]][=action]`,
/// several of them joined by commas, read once at the start of the process, or
/// by `arm_failpoint`. At the n-th pass (1 by default), with `+` at every later
/// one too, the action is carried out: `kill` (the default; SIGKILL to
/// itself), `exit` (`_exit(134)`), or `eio` / `enospc`: returns that errno for
/// the caller to act as if the system call had failed with it. Otherwise 0.
inline int failpoint(const char* name) {
  if (!detail::failpoints_armed.load(std::memory_order_relaxed))
    return 0;
  return detail::hit_failpoint(name);
}

/// Arms *specs* in place of what was armed; an empty text disarms.
expected<void> arm_failpoint(const std::string& specs);

} // namespace troupe
