#pragma once

#include <chrono>
#include <cstdint>
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
/// and, if it got a pid, later `ended` once. Without a thread or a descriptor
/// for it `spawn` itself calls `started` with the failure.
///
/// The client holds a pidfd of each process: it kills and sees ends without
/// the spawner, which only knows causes. If the spawner dies, its ranks die
/// with it: once they are gone each is reported as `process_exit::kind::lost`
/// with the cause in its last words, requests under way fail with `ec::spawn`,
/// and the next request starts a new spawner.
///
/// A spawner that owes an answer for `answer_limit` has hung. The end of a rank
/// is reported without its cause then, and the spawner is killed: at once if it
/// was to start a process that is not wanted any more, else when none of its
/// ranks is left.
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
  /// process that is not there yet is not started any more.
  void kill(process_id id, int signal);

  /// Whether process *id* has ended, or ends with its spawner, even if no one
  /// was told yet: how it ended is for the spawner to say.
  bool has_ended(process_id id) const;

  /// The process id of the spawner, -1 while there is none.
  pid_t spawner_pid() const;

private:
  std::unique_ptr<spawner_connection> impl_;
};

} // namespace troupe
