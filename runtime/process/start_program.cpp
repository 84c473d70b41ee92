#include "troupe/runtime/process/start_program.hpp"

#include "troupe/runtime/fs.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace troupe::internal {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& x : strings)
    result.push_back(x.data());
  result.push_back(nullptr);
  return result;
}

/// The attributes and file actions of posix_spawn with their cleanup.
struct spawn_settings {
  spawn_settings() {
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
  }

  spawn_settings(const spawn_settings&) = delete;
  spawn_settings& operator=(const spawn_settings&) = delete;

  ~spawn_settings() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }

  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
};

} // namespace

tl::unexpected<error> spawn_failure(std::string what, int error_number) {
  auto result = system_failure(ec::spawn, std::move(what), error_number);
  auto& message = result.value().message;
  if (error_number == EAGAIN)
    message += "; the user probably has as many processes and threads as "
               "RLIMIT_NPROC allows, or a cgroup as many as its pids.max";
  else if (error_number == EMFILE)
    message += "; RLIMIT_NOFILE allows no more";
  return result;
}

expected<std::string> own_program() {
  boost::system::error_code code;
  auto result = fs::read_symlink("/proc/self/exe", code).string();
  if (code)
    return failure(ec::spawn,
                   "the file of this program is not known: " + code.message());
  return result;
}

expected<started_program> start_program(program_start x, std::string what) {
  spawn_settings with;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&with.attributes, &none);
  posix_spawnattr_setsigdefault(&with.attributes, &all);
  posix_spawnattr_setflags(&with.attributes, POSIX_SPAWN_SETSID
                                               | POSIX_SPAWN_SETSIGMASK
                                               | POSIX_SPAWN_SETSIGDEF);
  int highest = STDERR_FILENO;
  for (auto [ours, theirs] : x.descriptors) {
    highest = std::max(highest, theirs);
    if (ours >= 0)
      posix_spawn_file_actions_adddup2(&with.actions, ours, theirs);
    else
      posix_spawn_file_actions_addopen(&with.actions, theirs, "/dev/null",
                                       O_RDWR, 0);
  }
  posix_spawn_file_actions_addclosefrom_np(&with.actions, highest + 1);
  auto arguments = pointers_to(x.arguments);
  std::vector<char*> environment;
  if (x.environment)
    environment = pointers_to(*x.environment);
  pid_t pid = -1;
  int failed = ::posix_spawnp(&pid, x.file.c_str(), &with.actions,
                              &with.attributes, arguments.data(),
                              x.environment ? environment.data() : environ);
  if (failed != 0)
    return spawn_failure(std::move(what), failed);
  return started_program{pid, open_pidfd(pid)};
}

} // namespace troupe::internal
