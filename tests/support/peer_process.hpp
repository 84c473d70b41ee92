#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal::test {

/// A program in its own process group, which ends with its owner.
class peer_process {
public:
  /// Starts *command*, whose first word is a full path, with exactly this
  /// *environment*. Appends both its streams to the file *log*; its working
  /// folder is that of *log*.
  peer_process(const std::vector<std::string>& command,
               const std::map<std::string, std::string>& environment,
               const fs::path& log) {
    std::vector<std::string> lines;
    for (const auto& [name, value] : environment)
      lines.push_back(name + "=" + value);
    auto argv = pointers_to(command);
    auto envp = pointers_to(lines);
    auto folder = log.parent_path().string();
    pid_ = ::fork();
    if (pid_ < 0)
      throw std::runtime_error{"no process could be forked"};
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      auto output =
        ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      auto input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      ::dup2(input, 0);
      ::dup2(output, 1);
      ::dup2(output, 2);
      if (::chdir(folder.c_str()) == 0)
        ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    ::setpgid(pid_, pid_); // Parent and child both do it: either may be first.
  }

  ~peer_process() { stop(); }

  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  int pid() const noexcept { return pid_; }

  /// Waits for its end; the exit code, or -1 if a signal ended it.
  int wait() {
    int status = -1;
    while (!ended_ && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    if (!ended_)
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ended_ = true;
    return exit_code_;
  }

  /// Whether it ends within *limit*.
  bool ends_within(std::chrono::milliseconds limit) {
    if (ended_)
      return true;
    auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    pollfd x{fd, POLLIN, 0};
    auto ready = ::poll(&x, 1, static_cast<int>(limit.count()));
    ::close(fd);
    if (ready > 0)
      wait();
    return ready > 0;
  }

  /// Sends SIGKILL to the whole group; nothing of it is left afterwards.
  void kill() { end_group(SIGKILL); }

  /// Sends SIGTERM, then SIGKILL to what has not ended after 20 s.
  void stop() {
    if (!ended_) {
      ::kill(pid_, SIGTERM);
      ends_within(std::chrono::seconds{20});
    }
    end_group(SIGKILL);
  }

private:
  static std::vector<char*>
  pointers_to(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (const auto& x : strings)
      result.push_back(const_cast<char*>(x.c_str()));
    result.push_back(nullptr);
    return result;
  }

  void end_group(int signal) {
    if (group_ended_)
      return;
    ::kill(-pid_, signal);
    wait();
    // Children of a child are soon reaped by another process.
    for (int i = 0; i < 500 && ::kill(-pid_, 0) == 0; ++i)
      ::poll(nullptr, 0, 10);
    group_ended_ = true;
  }

  pid_t pid_ = -1;
  bool ended_ = false;
  bool group_ended_ = false;
  int exit_code_ = -1;
};

} // namespace troupe::internal::test
