#pragma once

#include <atomic>
#include <string>

#include "troupe/build_options.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

#if TROUPE_FAILPOINTS

/// Whether any failpoint is armed. An unarmed one costs one load of it.
extern std::atomic<bool> failpoints_armed;

int hit_failpoint(const char* name);

/// A named point at which a test ends the process or makes a system call fail.
/// Only builds configured with `TROUPE_FAILPOINTS` have them; in others this is
/// 0 and the variable is ignored.
///
/// Armed by the environment variable `TROUPE_FAILPOINT=name[:n[+]][=action]`,
/// several of them joined by commas, read once at the start of the process, or
/// by `arm_failpoint`. At the n-th pass (1 by default), with `+` at every later
/// one too, the action is carried out: `kill` (the default; SIGKILL to
/// itself), `exit` (`_exit(134)`), or `eio` / `enospc`: returns that errno for
/// the caller to act as if the system call had failed with it. Otherwise 0.
/// Each action is first noted, as "<pid> <name>", in the file that the variable
/// `TROUPE_FAILPOINT_LOG` names.
inline int failpoint(const char* name) {
  if (!failpoints_armed.load(std::memory_order_relaxed))
    return 0;
  return hit_failpoint(name);
}

#else

constexpr int failpoint(const char*) {
  return 0;
}

#endif

/// Arms *specs* instead of what was armed; an empty text disarms.
/// `ec::unsupported`: this build has no failpoints.
expected<void> arm_failpoint(const std::string& specs);

} // namespace troupe::internal
