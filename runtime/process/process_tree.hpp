#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe {

/// The children of this process, ended or not, of all its threads. Those of its
/// descendants that lost their parents are among them if this process is their
/// subreaper.
std::vector<pid_t> own_children();

/// Kills every process that got *variable* ("NAME=value") in its environment
/// when it was started, and waits until they are gone, at most *limit*. Returns
/// how many there were.
std::size_t end_processes_with(const std::string& variable,
                               std::chrono::milliseconds limit);

/// Kills every process of session *session* and waits until they are gone, at
/// most *limit*. For the session of a process that this one started.
void end_session(pid_t session, std::chrono::milliseconds limit);

} // namespace troupe
