#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/process_exit.hpp"

namespace troupe::internal {

/// Describes a new rank process.
struct spawn_request {
  /// Passed to `rank_main` unchanged; at most 64 MiB.
  std::string payload;

  /// Variables of the program's environment that the process does not get, not
  /// even in `/proc/<pid>/environ`; a `*` stands for any characters, or none.
  /// If there are any, variables with a login in a URL are removed, too.
  std::vector<std::string> hidden;

  /// Set before `rank_main` starts; overrides the program's environment.
  std::vector<std::pair<std::string, std::string>> environment;

  /// The cores the process may run on; empty leaves it unpinned. If the host
  /// refuses, the rank prints a line and continues.
  std::vector<int> cores;

  /// Where stdout and stderr go: appended to this file if it is not empty ...
  std::string log_path;

  /// ... else to this descriptor, else to the caller's own stdout and stderr.
  unique_fd output;

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

class spawner_connection;

/// Asks the spawner for processes and reports how they end.
/// Thread-safe.
///
/// All callbacks run on one thread of the client, which starts with the first
/// request; they must not block. For each request `started` is called once,
/// and, if it got a pid, later `ended` once. Without a thread or a descriptor
/// for it `spawn` itself calls `started` with the failure.
///
/// The client holds a pidfd of each process: it kills and sees ends without the
/// spawner, which only adds causes. If the spawner dies, its ranks die with it:
/// once they have ended each is reported as `process_exit::kind::lost` with the
/// cause in its message, requests under way fail with `ec::spawn`, and the
/// next request starts a new spawner.
///
/// A spawner that does not answer within `answer_limit` hangs. The end of a
/// rank is then reported without its cause, and the spawner is killed: at once
/// if it was to start a process that is no longer wanted, otherwise when none
/// of its ranks is left.
class spawner_client {
public:
  using started_callback = std::function<void(expected<pid_t>)>;
  using ended_callback = std::function<void(process_exit)>;

  /// Names a request and its process.
  using process_id = std::uint64_t;

  static constexpr std::chrono::seconds answer_limit{2};

  explicit spawner_client(spawner_link link);

  spawner_client(const spawner_client&) = delete;
  spawner_client& operator=(const spawner_client&) = delete;

  /// Ends the spawner and all its ranks. Callbacks still due are dropped; none
  /// runs after this.
  ~spawner_client();

  /// Queues *request* and returns at once.
  process_id spawn(spawn_request request, started_callback started,
                   ended_callback ended);

  /// Sends *signal* to process *id*; does nothing if it has ended already. A
  /// process that does not exist yet is not started.
  void kill(process_id id, int signal);

  /// Whether process *id* has ended, or ends with its spawner, even if that was
  /// not reported yet: the spawner knows the cause.
  bool has_ended(process_id id) const;

  /// The process id of the spawner, -1 while there is none.
  pid_t spawner_pid() const;

private:
  std::unique_ptr<spawner_connection> impl_;
};

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

/// The client of the spawner that `init_spawner` made, for the rest of the
/// process; `ec::not_initialized` before that, `ec::invalid_argument` inside a
/// rank.
expected<spawner_client*> spawner();

/// How often the spawners of this process could not end leftover processes of
/// ranks: one died, or did not answer in time. Counted before the ends of those
/// ranks are reported.
std::uint64_t spawner_losses() noexcept;

/// Forks a spawner; the calling process must have a single thread.
expected<spawner_link> fork_spawner(rank_main entry);

/// Starts this program again as a spawner. From any thread, at any time.
expected<spawner_link> exec_spawner();

/// Becomes the spawner and never returns if this process was started by
/// `exec_spawner`; otherwise returns at once.
void run_spawner_if_asked(rank_main entry);

/// The number of threads of this process.
int thread_count();

} // namespace troupe::internal
