#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "troupe/runtime/process/spawn_wire.hpp"
#include "troupe/runtime/process/spawner.hpp"

namespace troupe {

/// The life of a spawner: takes orders from its socket, forks ranks, and tells
/// how they end. Everything happens on one thread.
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
    unique_fd last_words;
  };

  void detach();
  [[noreturn]] void finish();

  /// Waits until the socket has something; ends with the user's process.
  void await_socket();
  std::string receive(std::size_t size, std::vector<unique_fd>& descriptors);
  void send(spawn_frame kind, std::string_view body);

  void serve_frame();
  void start(std::string_view body, std::vector<unique_fd> descriptors);
  void refuse(std::uint64_t id, std::string_view why);
  void signal_rank(std::string_view body);
  void report_ended(std::size_t index);

  unique_fd socket_;
  pid_t parent_;
  rank_main entry_;
  unique_fd parent_process_;
  std::vector<rank> ranks_;
  char program_name_[16] = {};
};

} // namespace troupe
