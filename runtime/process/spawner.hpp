#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/inheritance.hpp"

namespace troupe::internal {

class spawner_connection;

/// Describes a new rank process.
struct spawn_request {
  /// Passed to `rank_main` unchanged; at most 64 MiB.
  std::string payload;

  /// Variables of the program's environment that the process does not get, not
  /// even in `/proc/<pid>/environ`; a `*` stands for any characters, or none.
  /// If there are any, variables with a login in a URL are removed, too.
  std::vector<std::string> hidden;

  /// Variables of the spawner's environment that the process does not get
  /// because the program has removed them since.
  std::vector<std::string> removed;

  /// Set before `rank_main` starts; overrides the spawner's environment.
  std::vector<std::pair<std::string, std::string>> environment;

  /// The cores the process may run on; empty leaves it unpinned. If the host
  /// refuses, the rank prints a line and continues.
  std::vector<int> cores;

  /// Where stdout and stderr go: appended to this file if it is not empty ...
  std::string log_path;

  /// ... else to this descriptor, else to the caller's own stdout and stderr.
  unique_fd output;

  /// The process's current folder; empty: that of the spawner.
  unique_fd folder;

  /// Unset: that of the spawner.
  std::optional<mode_t> umask;

  /// Arrive in the process in this order; its numbers may differ. At most 200.
  std::vector<unique_fd> descriptors;
};

/// The user's end of a spawner. Closing the socket ends the spawner and with
/// it every rank.
struct spawner_link {
  unique_fd socket;
  pid_t pid = -1;
  unique_fd process; ///< A pidfd: names the spawner even after its end.
};

/// Waits until the spawner has ended, at most *timeout_ms*, then kills it. Then
/// no process of its session is left, as far as processes can be inspected: no
/// rank, and of the ranks' child processes only those with their own session.
/// Says how it ended, e.g. "exited with code 0".
std::string reap(const spawner_link& link, int timeout_ms);

/// Closes the socket and `reap`s. The spawner ends although a process that the
/// program forked still has the socket open.
std::string dismiss(spawner_link& link, int timeout_ms);

/// What a rank process runs. *descriptors* are those of its `spawn_request`,
/// owned by the callee. The process ends with the returned code after stdio is
/// flushed; no static destructor of the program runs.
using rank_main = int (*)(std::string payload, std::vector<int> descriptors);

/// Makes the spawner of this process: a single-threaded child that forks ranks
/// in milliseconds. Call it first in `main`, once.
///
/// While the process has one thread the spawner is a fork of it. Later it is
/// the program started once more with the same arguments, whose own call of
/// this function never returns; whatever `main` does before that call happens
/// there too. The spawner ends with this process, and every rank with the
/// spawner, however this process ends. A second call does nothing.
expected<void> init_spawner(rank_main entry);

/// The connection to the spawner that `init_spawner` made, for the rest of the
/// process; `ec::not_initialized` before that, `ec::invalid_argument` inside a
/// rank, and once the process runs as another user.
expected<spawner_connection*> spawner();

/// How often the spawners of this process could not end leftover processes of
/// ranks: one died, or did not answer in time. Counted before the ends of those
/// ranks are reported.
std::uint64_t spawner_losses() noexcept;

/// Starts this program again as a spawner that has *variables*. From any
/// thread, at any time.
expected<spawner_link>
exec_spawner(std::vector<std::string> variables = own_variables());

/// The number of threads of this process.
int thread_count();

} // namespace troupe::internal
