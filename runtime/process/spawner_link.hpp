#pragma once

#include <sys/types.h>

#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// The user's end of a spawner. Closing the socket ends the spawner and with
/// it every rank.
struct spawner_link {
  unique_fd socket;
  pid_t pid = -1;
};

} // namespace troupe
