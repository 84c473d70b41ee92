#pragma once

#include <functional>
#include <memory>

#include <sys/types.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/spawn_request.hpp"
#include "troupe/runtime/process/spawner_link.hpp"

namespace troupe {

class spawner_connection;

/// Asks the spawner for processes and tells how they end. Thread-safe; many
/// users at once.
///
/// All callbacks run on one thread of the client, which starts with the first
/// request; they must not block. For each request `started` is called once,
/// and, if it got a pid, later `ended` once.
///
/// If the spawner dies, its ranks die with it: each is reported as
/// `process_exit::kind::lost` with the cause in its last words, requests under
/// way fail with `ec::spawn`, and the next request starts a new spawner.
class spawner_client {
public:
  using started_callback = std::function<void(expected<pid_t>)>;
  using ended_callback = std::function<void(process_exit)>;

  explicit spawner_client(spawner_link link);

  spawner_client(const spawner_client&) = delete;
  spawner_client& operator=(const spawner_client&) = delete;

  /// Ends the spawner and all its ranks. Callbacks still due are dropped; none
  /// runs after this.
  ~spawner_client();

  /// Queues *request* and returns at once.
  void spawn(spawn_request request, started_callback started,
             ended_callback ended);

  /// Sends *signal* to a process of this client; does nothing if it has ended
  /// already, even if its pid belongs to another process by now.
  void kill(pid_t pid, int signal);

  /// The process id of the spawner, -1 while there is none.
  pid_t spawner_pid() const;

private:
  std::unique_ptr<spawner_connection> impl_;
};

} // namespace troupe
