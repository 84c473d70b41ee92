#include "troupe/runtime/process/spawner.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "troupe/runtime/process/pidfd.hpp"
#include "troupe/runtime/process/rank_process.hpp"
#include "troupe/runtime/process/spawner_client.hpp"
#include "troupe/runtime/process/spawner_loop.hpp"
#include "troupe/runtime/process/system_failure.hpp"

namespace troupe {
namespace {

std::mutex client_mutex;
pid_t client_owner = -1;

// Ends with the process; a spawner and its ranks are forked before it exists.
std::unique_ptr<spawner_client>& client() {
  static std::unique_ptr<spawner_client> instance;
  return instance;
}

// A closed one would be the number of the next socket or file, into which all
// output of the program then goes.
expected<void> open_standard_descriptors() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0)
      continue;
    // Gets the lowest free number, which is this one.
    if (::open("/dev/null", O_RDWR) < 0)
      return system_failure(ec::spawn, "cannot open /dev/null for the closed "
                                       "standard descriptor "
                                         + std::to_string(fd));
  }
  return {};
}

} // namespace

expected<void> init_spawner(rank_main entry) {
  if (auto ok = open_standard_descriptors(); !ok)
    return ok;
  run_spawner_if_asked(entry);
  if (spawner())
    return {};
  // Not under the lock: a fork would inherit it locked.
  auto link = thread_count() == 1 ? fork_spawner(entry) : exec_spawner();
  if (!link)
    return tl::unexpected{link.error()};
  auto made = std::make_unique<spawner_client>(std::move(*link));
  std::lock_guard guard{client_mutex};
  if (client_owner == ::getpid())
    return {}; // Another thread was faster.
  client().swap(made);
  client_owner = ::getpid();
  return {};
}

expected<spawner_client*> spawner() {
  std::lock_guard guard{client_mutex};
  if (client() && client_owner == ::getpid())
    return client().get();
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

expected<spawner_link> fork_spawner(rank_main entry) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_failure(ec::spawn, "cannot make the spawner's socket");
  unique_fd mine{ends[0]};
  unique_fd theirs{ends[1]};
  // Text still buffered would be printed by both processes.
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  auto parent = ::getpid();
  auto pid = ::fork();
  if (pid < 0)
    return system_failure(ec::spawn, "cannot fork the spawner");
  if (pid == 0) {
    mine.reset();
    spawner_loop{std::move(theirs), parent, entry}.run();
  }
  return spawner_link{std::move(mine), pid, open_pidfd(pid)};
}

int thread_count() {
  // One folder a thread, beside "." and "..".
  struct stat tasks {};
  if (::stat("/proc/self/task", &tasks) != 0)
    return 2; // Unknown: the caller must not count on being alone.
  return static_cast<int>(tasks.st_nlink) - 2;
}

} // namespace troupe
