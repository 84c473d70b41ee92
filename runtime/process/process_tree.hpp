#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe {

/// The children of this process, ended or not, of all its threads. Those of its
/// descendants that lost their parents are among them if this process is their
/// subreaper.
std::vector<pid_t> own_children();

/// Processes that were killed.
struct killed_processes {
  std::vector<pid_t> gone;
  std::vector<pid_t> left; ///< Still there after the limit.
};

/// Kills every process that got *variable* ("NAME=value") in its environment
/// when it was started, and waits until they are gone, at most *limit*. Reading
/// an environment can block without bound: the kernel keeps readers waiting
/// while the process waits for a disk at the wrong place.
killed_processes end_processes_with(const std::string& variable,
                                    std::chrono::milliseconds limit);

/// Kills every process of session *session* and waits until they are gone, at
/// most *limit*. For the session of a process that this one started.
void end_session(pid_t session, std::chrono::milliseconds limit);

} // namespace troupe
