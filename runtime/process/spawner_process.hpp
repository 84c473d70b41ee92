#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "troupe/runtime/process/oom_watch.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/spawn_wire.hpp"
#include "troupe/runtime/process/spawner.hpp"

namespace troupe::internal {

/// What a spawner does: takes orders from its socket, forks ranks, and reports
/// how they end. Everything happens on one thread.
///
/// Each rank leads a process group and adopts what its descendants leave
/// behind. What is left when it ends falls to the spawner and is killed: the
/// end of a rank is reported once nothing that it started is left.
class spawner_loop {
public:
  spawner_loop(unique_fd socket, pid_t parent, rank_main entry);

  /// Leaves the terminal and its signals to the user's process, then works
  /// until that process closes the socket or dies. Kills all ranks and ends.
  [[noreturn]] void run();

private:
  struct rank {
    std::uint64_t id = 0;
    pid_t pid = -1;
    unique_fd process; ///< A pidfd.
    unique_fd termination_message;
  };

  /// Something that a rank started and that outlived it; killed already.
  struct orphan {
    pid_t pid = -1;
    unique_fd process; ///< A pidfd.
  };

  /// The end of a rank that is not reported yet.
  struct ending {
    std::uint64_t id = 0;
    process_exit how;
    std::chrono::steady_clock::time_point due; ///< Reported then at the latest.
  };

  void detach();
  [[noreturn]] void finish();

  /// Waits until the socket has something; ends with the user's process.
  void await_socket();
  std::string receive(std::size_t size, std::vector<unique_fd>& descriptors);
  void send(spawn_frame kind, std::string_view body,
            std::vector<unique_fd> descriptors = {});

  void serve_frame();
  void start(std::string_view body, std::vector<unique_fd> descriptors);
  void refuse(std::uint64_t id, std::string_view why);
  void signal_rank(std::string_view body);
  /// Adds what to poll for the ends of ranks, then of orphans.
  void watch_ends(std::vector<pollfd>& waits) const;
  /// Reaps those that have ended, by *ends* of `watch_ends`. Returns whether
  /// there was one.
  bool reap_ended(const pollfd* ends);
  void reap_rank(std::size_t index);
  void kill_orphans();
  void report_endings();

  unique_fd socket_;
  pid_t parent_;
  rank_main entry_;
  unique_fd parent_process_;
  std::vector<rank> ranks_;
  std::vector<orphan> orphans_;
  std::vector<ending> endings_;
  oom_watch oom_;
  std::vector<pid_t>
    earlier_children_;        ///< Children from before: not of any rank.
  std::vector<pid_t> traced_; ///< Ended, but still held by a debugger.
  char program_name_[16] = {};
};

} // namespace troupe::internal
