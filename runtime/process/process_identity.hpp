#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

namespace troupe {

/// What names one process among all that ever ran on any host: process ids are
/// used again, by the next boot and by other hosts.
struct process_identity {
  std::string host;
  std::string boot; ///< Id of the kernel's boot; empty where there is no /proc.
  pid_t pid = 0;
  std::string start; ///< Clock ticks since boot when it started.

  bool operator==(const process_identity&) const = default;
};

/// This process.
process_identity own_identity();

/// When process *pid* started, in clock ticks since boot; nothing if there is
/// no such process.
std::optional<std::string> start_time_of(const std::string& pid);

/// One line, and back; nothing if *text* is not such a line.
std::string to_line(const process_identity& x);
std::optional<process_identity> process_from_line(const std::string& text);

/// "pid 12 on host"
std::string to_string(const process_identity& x);

} // namespace troupe
