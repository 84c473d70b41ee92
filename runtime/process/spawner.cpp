#include "troupe/runtime/process/spawner.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include "troupe/runtime/process/become_rank.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/runtime/process/spawner_process.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

/// How long killed processes may take to end. Only a process that waits for a
/// disk takes longer than milliseconds.
constexpr int kill_limit_ms = 2000;

/// Our end of the connection to a spawner, and the spawner's.
expected<std::pair<unique_fd, unique_fd>> spawner_sockets() {
  return socket_pair("cannot make the spawner's socket");
}

/// *link*, unless there was no descriptor that watches its spawner, which is
/// then killed.
expected<spawner_link> watched(spawner_link link) {
  if (link.process)
    return expected<spawner_link>{std::move(link)};
  auto why = spawn_failure("cannot watch the spawner");
  ::kill(link.pid, SIGKILL);
  uninterrupted([&] { return ::waitpid(link.pid, nullptr, 0); });
  return why;
}

/// Whether another process has the number of the spawner by now, and with it
/// any session of that number: the program itself has collected its child, long
/// ago perhaps, and none of its session was left.
bool has_lost_number(const spawner_link& link) {
  siginfo_t info{};
  auto is_collected =
    uninterrupted([&] {
      return ::waitid(P_PIDFD, static_cast<id_t>(link.process.get()), &info,
                      WEXITED | WNOHANG | WNOWAIT);
    })
    != 0;
  return is_collected && (::kill(link.pid, 0) == 0 || errno == EPERM);
}

} // namespace

std::string reap(const spawner_link& link, int timeout_ms) {
  if (!has_ended(link.process, timeout_ms))
    send_signal(link.process, SIGKILL);
  if (!has_lost_number(link))
    end_session(link.pid, std::chrono::milliseconds{kill_limit_ms});
  if (!has_ended(link.process, kill_limit_ms))
    return "was killed but does not end";
  siginfo_t info{};
  auto rc = uninterrupted([&] {
    return ::waitid(P_PIDFD, static_cast<id_t>(link.process.get()), &info,
                    WEXITED);
  });
  if (rc != 0) // The program itself waits for all children.
    return "ended";
  auto how = info.si_code == CLD_EXITED ? process_exit::kind::exited
                                        : process_exit::kind::signaled;
  auto text = to_string(process_exit{how, info.si_status, {}});
  return how == process_exit::kind::signaled ? "was " + text : text;
}

std::string dismiss(spawner_link& link, int timeout_ms) {
  ::shutdown(link.socket.get(), SHUT_RDWR);
  link.socket.reset();
  return reap(link, timeout_ms);
}

namespace {

/// Holds the process id of the user's process; the socket is always
/// `spawner_fd`.
constexpr const char* spawner_variable = "TROUPE_SPAWNER";
constexpr int spawner_fd = 3;

std::vector<std::string> own_arguments() {
  std::ifstream file{"/proc/self/cmdline", std::ios::binary};
  std::string bytes{std::istreambuf_iterator<char>{file}, {}};
  std::vector<std::string> result;
  for (std::size_t at = 0; at < bytes.size();) {
    result.emplace_back(bytes.c_str() + at);
    at += result.back().size() + 1;
  }
  if (result.empty())
    result.emplace_back("troupe-spawner");
  return result;
}

} // namespace

expected<spawner_link> exec_spawner(std::vector<std::string> variables) {
  auto name = std::string{spawner_variable} + "=";
  std::erase_if(variables,
                [&](const std::string& x) { return x.starts_with(name); });
  variables.push_back(concat(name, ::getpid()));
  TROUPE_TRY(auto ends, spawner_sockets());
  auto& [mine, theirs] = ends;
  // The socket first: it has a low number if the program has closed one.
  program_start start{
    "/proc/self/exe",
    own_arguments(),
    std::move(variables),
    {{theirs.get(), spawner_fd}, {-1, STDIN_FILENO}, {-1, STDOUT_FILENO}}};
  TROUPE_TRY(auto started,
             start_program(std::move(start),
                           "cannot start this program again as the spawner"));
  return watched({std::move(mine), started.pid, std::move(started.process)});
}

namespace {

/// Becomes the spawner and never returns if this process was started by
/// `exec_spawner`; otherwise returns at once.
void run_spawner_if_asked(rank_main entry) {
  const char* value = std::getenv(spawner_variable);
  if (!value)
    return;
  auto parent = static_cast<pid_t>(std::atoi(value));
  ::unsetenv(spawner_variable);
  // Programs that were started earlier also inherit the variable, but not the
  // socket.
  auto peer = peer_of(spawner_fd);
  if (!peer || peer->pid != parent)
    return;
  ::fcntl(spawner_fd, F_SETFD, FD_CLOEXEC);
  spawner_loop{unique_fd{spawner_fd}, parent, entry}.run();
}

/// Forks a spawner; the calling process must have a single thread.
expected<spawner_link> fork_spawner(rank_main entry) {
  TROUPE_TRY(auto ends, spawner_sockets());
  auto& [mine, theirs] = ends;
  // Text still buffered would be printed by both processes.
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  auto parent = ::getpid();
  auto pid = ::fork();
  if (pid < 0)
    return spawn_failure("cannot fork the spawner");
  if (pid == 0) {
    mine.reset();
    spawner_loop{std::move(theirs), parent, entry}.run();
  }
  return watched({std::move(mine), pid, open_pidfd(pid)});
}

std::mutex connection_mutex;

/// The connection of this process. A spawner and its ranks are forked before it
/// exists. In a fork of the user's process its thread is missing, and the
/// spawner is not that process's to end.
struct own_connection {
  /// A thread that runs until the very end may still use the closed connection.
  ~own_connection() {
    if (*this)
      client->close();
  }

  explicit operator bool() const noexcept { return client && owner.is_here(); }

  spawner_connection* client = nullptr; ///< Never deleted.
  owner_process owner;
};

// Made first and destroyed last: objects of the program with static storage may
// own runs.
[[gnu::init_priority(101)]] own_connection program_connection;

} // namespace

expected<void> init_spawner(rank_main entry) {
  TROUPE_TRY_VOID(open_standard_descriptors());
  run_spawner_if_asked(entry);
  {
    std::lock_guard guard{connection_mutex};
    if (program_connection)
      return {};
  }
  // Not under the lock: a fork would inherit it locked.
  TROUPE_TRY(auto link,
             thread_count() == 1 ? fork_spawner(entry) : exec_spawner());
  auto made = std::make_unique<spawner_connection>(std::move(link));
  std::lock_guard guard{connection_mutex};
  if (program_connection)
    return {}; // Another thread was faster.
  program_connection.client = made.release();
  program_connection.owner = owner_process{};
  return {};
}

expected<spawner_connection*> spawner() {
  std::lock_guard guard{connection_mutex};
  if (program_connection) {
    TROUPE_TRY_VOID(program_connection.client->check_user());
    return program_connection.client;
  }
  if (is_rank())
    return failure(ec::invalid_argument,
                   "a train loop in a rank's process cannot start ranks in "
                   "processes: call fit() where the program called it for this "
                   "loop, or set num_workers to 0 or scaling.where to "
                   "placement::in_process");
  return failure(ec::not_initialized,
                 "troupe::init was not called in this process; it is the "
                 "first line of main, after any fork");
}

int thread_count() {
  // One folder a thread, beside "." and "..".
  struct stat tasks {};
  if (::stat("/proc/self/task", &tasks) != 0)
    return 2; // Unknown: the caller must not count on being alone.
  return static_cast<int>(tasks.st_nlink) - 2;
}

} // namespace troupe::internal
