#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "troupe/runtime/process/spawn_wire.hpp"
#include "troupe/runtime/process/spawner_client.hpp"

namespace troupe {

/// What stands behind `spawner_client`: the socket, the thread that alone uses
/// it, and the requests under way.
class spawner_connection {
public:
  explicit spawner_connection(spawner_link link);
  spawner_connection(const spawner_connection&) = delete;
  spawner_connection& operator=(const spawner_connection&) = delete;
  ~spawner_connection();

  void spawn(spawn_request request, spawner_client::started_callback started,
             spawner_client::ended_callback ended);
  void kill(pid_t pid, int signal);
  pid_t spawner_pid() const;

  /// The process that made this object.
  pid_t owner() const noexcept { return owner_; }

private:
  struct process {
    pid_t pid = -1; ///< -1 until the spawner has answered.
    spawner_client::started_callback started;
    spawner_client::ended_callback ended;
  };

  /// Something to tell the spawner: a request, or a signal to process *id*.
  struct order {
    std::uint64_t id = 0;
    int signal = 0;
    spawn_request request;
  };

  /// A frame being sent; the descriptors go with its first byte.
  struct frame {
    std::string bytes;
    std::size_t sent = 0;
    std::vector<unique_fd> descriptors;
  };

  expected<void> push(order x);
  void wake() noexcept;

  // All below run on the thread.
  void run();
  bool ensure_spawner();
  void wait();
  void receive();
  void handle(spawn_frame kind, std::string_view body);
  void send();
  bool next_frame();
  expected<frame> make_start_frame(std::uint64_t id, spawn_request request);
  void refuse(std::uint64_t id, const error& why);
  void lose_spawner(std::string why);
  void fail_everything(const error& why);

  const pid_t owner_;
  unique_fd wake_;

  mutable std::mutex mutex_;
  bool stopping_ = false;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, process> processes_;
  std::deque<order> orders_;
  spawner_link link_;
  std::thread thread_;

  // Used by the thread alone.
  bool ready_ = false; ///< The spawner has said hello.
  std::chrono::steady_clock::time_point deadline_; ///< For its hello.
  std::string received_;
  frame sending_;
};

} // namespace troupe
