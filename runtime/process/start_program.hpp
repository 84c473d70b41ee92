#pragma once

#include <sys/types.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// A program to be started in a session of its own, with no signal blocked,
/// ignored or handled.
struct program_start {
  /// Searched for in PATH unless it has a slash.
  std::string file;

  std::vector<std::string> arguments; ///< The first one is its name.

  /// Unset: the variables of this process.
  std::optional<std::vector<std::string>> environment;

  /// A descriptor of this process, -1 for /dev/null, and its number in the
  /// program; made in this order. All above the highest number are closed,
  /// those below it and not named are inherited.
  std::vector<std::pair<int, int>> descriptors;
};

struct started_program {
  pid_t pid = -1;    ///< Also of its session.
  unique_fd process; ///< A pidfd.
};

/// Why no process could be made: `ec::spawn` with "<what>: <what the system
/// says of *error_number*>" and, if there is one, the limit that is likely
/// reached.
tl::unexpected<error> spawn_failure(std::string what, int error_number = errno);

/// The file of this program; `ec::spawn` if the system does not say.
expected<std::string> own_program();

/// Starts *x*, from any thread; fails with `spawn_failure`.
expected<started_program> start_program(program_start x, std::string what);

} // namespace troupe::internal
