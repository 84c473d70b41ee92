#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// Identifies a process among all that ever ran on any host: process ids are
/// reused, after a reboot and on other hosts.
struct process_identity {
  std::string host;
  std::string boot; ///< Id of the kernel's boot; empty where there is no /proc.
  pid_t pid = 0;
  std::string start; ///< Clock ticks since boot when it started.

  bool operator==(const process_identity&) const = default;
};

/// What this host calls itself.
std::string own_host_name();

/// This process.
process_identity own_identity();

/// 64 random bits that tell what this process makes, such as a run or an
/// attempt, from what any other makes. Not good enough for secrets.
std::uint64_t random_bits();

/// Whether *x*, a process of this host, has not ended. One whose parent has not
/// collected it yet has.
bool is_alive(const process_identity& x);

/// One line, and back; nothing if *text* is not such a line.
std::string to_line(const process_identity& x);
std::optional<process_identity> process_from_line(const std::string& text);

/// "pid 12 on host"
std::string to_string(const process_identity& x);

/// The children of this process, ended or not, of all its threads. Those of its
/// descendants that lost their parents are among them if this process is their
/// subreaper.
std::vector<pid_t> own_children();

/// The children of *pid*, ended or not, their children and so on, as far as the
/// kernel lists them.
std::vector<pid_t> descendants_of(pid_t pid);

/// Processes that were killed.
struct killed_processes {
  std::vector<pid_t> gone;
  std::vector<pid_t> left; ///< Still there after the limit.

  /// Why not all processes could be looked at, an `errno` (no descriptor was
  /// free); 0: all were. One that has ended or is another user's does not
  /// count.
  int blind = 0;
};

/// Kills every process that got *variable* ("NAME=value") in its environment
/// when it was started, and waits until they are gone, at most *limit* once
/// they are killed. Spares this process and those that it descends from. If it
/// has *variable* itself it also spares its own descendants, such as its
/// spawner, and its process group, such as the rest of a pipeline. Reading an
/// environment can block without bound: the kernel keeps readers waiting while
/// the process waits for a disk at the wrong place. A stop of *given_up*
/// ends the search: what was not seen by then is not killed.
killed_processes end_processes_with(const std::string& variable,
                                    std::chrono::milliseconds limit,
                                    const std::stop_token& given_up = {});

/// Marks *file*, whose offset is not used for reading, as opened by this
/// process: sets an offset that no reader of a file below 1 GiB reaches.
void sign_offset(const unique_fd& file) noexcept;

/// Kills every process that inherited, by a fork, an open *file* whose opener
/// has signed it and has a shared `flock` on it, and waits as above. Spares
/// this process, those that it descends from, and the ones that opened the file
/// itself, wherever it reads. *name* is what the file is called.
killed_processes end_inheritors(const struct stat& file,
                                const std::string& name,
                                std::chrono::milliseconds limit,
                                const std::stop_token& given_up = {});

/// The processes that have *file* open, which is called *name*.
std::vector<pid_t> processes_with(const struct stat& file,
                                  const std::string& name);

/// Kills every process of session *session* and waits until they are gone, at
/// most *limit* once they are killed. For the session of a process that this
/// one started.
void end_session(pid_t session, std::chrono::milliseconds limit);

} // namespace troupe::internal
