#pragma once

#include <chrono>
#include <vector>

#include <sys/types.h>

namespace troupe {

/// The children of this process, ended or not, of all its threads. Those of its
/// descendants that lost their parents are among them if this process is their
/// subreaper.
std::vector<pid_t> own_children();

/// Kills every process of session *session* and waits until they are gone, at
/// most *limit*. For the session of a process that this one started.
void end_session(pid_t session, std::chrono::milliseconds limit);

} // namespace troupe
