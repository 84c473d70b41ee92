#pragma once

#include <string>

#include <sys/types.h>

#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// The user's end of a spawner. Closing the socket ends the spawner and with
/// it every rank.
struct spawner_link {
  unique_fd socket;
  pid_t pid = -1;
  unique_fd process; ///< A pidfd: names the spawner even after its end.
};

/// Waits until the spawner has ended, at most *timeout_ms*, then kills it.
/// Nothing of its session is left then, as far as processes can be looked at:
/// no rank, and of what ranks started only what has a session of its own. Says
/// how it ended, e.g. "exited with code 0".
std::string reap(const spawner_link& link, int timeout_ms);

} // namespace troupe
