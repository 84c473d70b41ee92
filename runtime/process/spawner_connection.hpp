#pragma once

#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/spawn_wire.hpp"
#include "troupe/runtime/process/spawner.hpp"

namespace troupe::internal {

/// Asks the spawner for processes and reports how they end: the socket, the
/// only thread that uses it, and the pending requests. Thread-safe.
///
/// All callbacks run on that thread, which starts with the first request; they
/// must not block. For each request `started` is called once, and, if it got a
/// pid, later `ended` once. Without a thread or a descriptor for it `spawn`
/// itself calls `started` with the failure.
///
/// The connection holds a pidfd of each process: it kills and sees ends without
/// the spawner, which only adds causes. If the spawner dies, its ranks die with
/// it: once they have ended each is reported as `process_exit::kind::lost` with
/// the cause in its message, requests under way fail with `ec::spawn`, and the
/// next request starts a new spawner, with the variables of the first one.
///
/// A spawner that does not answer within `answer_limit` hangs. The end of a
/// rank is then reported without its cause, and the spawner is killed: at once
/// if it was to start a process that is no longer wanted, otherwise when none
/// of its ranks is left.
class spawner_connection {
public:
  using started_callback = std::function<void(expected<pid_t>)>;
  using ended_callback = std::function<void(process_exit)>;

  /// Names a request and its process.
  using process_id = std::uint64_t;

  static constexpr std::chrono::seconds answer_limit{2};

  /// The spawner of *link* has *variables*.
  explicit spawner_connection(
    spawner_link link, std::vector<std::string> variables = own_variables());

  spawner_connection(const spawner_connection&) = delete;
  spawner_connection& operator=(const spawner_connection&) = delete;

  ~spawner_connection() { close(); }

  /// Ends the spawner and all its ranks. Callbacks still due are dropped; none
  /// runs after this. Later requests fail.
  void close() noexcept;

  /// Queues *request* and returns at once.
  process_id spawn(spawn_request request, started_callback started,
                   ended_callback ended);

  /// Sends *signal* to process *id*; does nothing if it has ended already. A
  /// process that does not exist yet is not started.
  void kill(process_id id, int signal);

  /// Whether process *id* has ended, or ends with its spawner, even if that was
  /// not reported yet: the spawner knows the cause.
  bool has_ended(process_id id) const;

  /// Those of its spawners.
  const std::vector<std::string>& variables() const noexcept {
    return variables_;
  }

  /// `ec::invalid_argument` if this process runs as another user or group than
  /// when it made the spawner: ranks would keep the rights of the first one,
  /// and this process could not end them.
  expected<void> check_user() const;

private:
  using clock = std::chrono::steady_clock;

  struct process {
    pid_t pid = -1;   ///< -1 until the spawner has answered.
    unique_fd handle; ///< Its pidfd; empty if there was no descriptor for it.
    started_callback started;
    ended_callback ended;
    bool unwanted = false; ///< Killed before it was started.
    bool gone = false;     ///< Its pidfd says so.
    /// When the spawner must have answered.
    std::optional<clock::time_point> due;
    std::string lost; ///< Why its spawner can no longer report on it.
  };

  using process_map = std::map<process_id, process>;

  /// A frame being sent; the descriptors go with its first byte.
  struct frame {
    std::string bytes;
    std::size_t sent = 0;
    std::vector<unique_fd> descriptors;
    process_id starts = 0; ///< What it asks for; 0: it is a signal.
  };

  /// A frame for the spawner: a request, or a signal to a process without
  /// a pidfd.
  struct order {
    process_id id = 0;
    int signal = 0;
    spawn_request request;
    frame made = {}; ///< The request, once a spawner has died before it.
  };

  expected<void> push(order x);

  // All below run on the thread.
  void run();
  /// After an exception: unfinished work is given up with the spawner.
  void recover() noexcept;
  bool ensure_spawner();
  void wait();
  /// When the next answer is due; `max()`: none is.
  clock::time_point next_deadline() const;
  /// What to poll besides the spawner: the existing processes, by their
  /// pidfds.
  std::vector<process_id> watch_processes(std::vector<pollfd>& waits);
  void see_end(process_id id);
  void drop_cancelled();
  void check_answers();
  void receive();
  void handle(received_frame x);
  void notify_started(process_id id, pid_t pid, unique_fd handle);
  void notify_ended(process_id id, process_exit how);
  void send();
  bool next_frame();
  void refuse(process_id id, const error& why);
  void lose_spawner(std::string why);
  void fail_everything(const error& why);

  const std::vector<std::string> variables_;
  const uid_t user_ = ::geteuid();
  const gid_t group_ = ::getegid();
  wake_event wake_;

  mutable std::mutex mutex_;
  bool stopping_ = false;
  process_id last_id_ = 0;
  process_map processes_;
  std::deque<order> orders_;
  spawner_link link_;
  std::thread thread_;

  // Used by the thread alone.
  bool ready_ = false;         ///< The spawner has said hello.
  bool hung_ = false;          ///< It did not answer in time.
  clock::time_point deadline_; ///< For its hello.
  frame_reader frames_;
  frame sending_;
};

} // namespace troupe::internal
