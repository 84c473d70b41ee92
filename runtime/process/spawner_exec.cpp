#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include "troupe/runtime/process/peer_credentials.hpp"
#include "troupe/runtime/process/pidfd.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/process/spawner_loop.hpp"
#include "troupe/runtime/process/system_failure.hpp"

namespace troupe {
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

std::vector<std::string> spawner_environment() {
  std::vector<std::string> result;
  auto name = std::string{spawner_variable} + "=";
  for (char** entry = environ; *entry; ++entry)
    if (!std::string_view{*entry}.starts_with(name))
      result.emplace_back(*entry);
  result.push_back(name + std::to_string(::getpid()));
  return result;
}

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

expected<spawner_link> exec_spawner() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_failure(ec::spawn, "cannot make the spawner's socket");
  unique_fd mine{ends[0]};
  unique_fd theirs{ends[1]};
  spawn_settings with;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&with.attributes, &none);
  posix_spawnattr_setsigdefault(&with.attributes, &all);
  posix_spawnattr_setflags(&with.attributes, POSIX_SPAWN_SETSID
                                               | POSIX_SPAWN_SETSIGMASK
                                               | POSIX_SPAWN_SETSIGDEF);
  // The socket first: it has a low number if the program has closed one.
  posix_spawn_file_actions_adddup2(&with.actions, theirs.get(), spawner_fd);
  for (int fd : {STDIN_FILENO, STDOUT_FILENO})
    posix_spawn_file_actions_addopen(&with.actions, fd, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_addclosefrom_np(&with.actions, spawner_fd + 1);
  auto arguments = own_arguments();
  auto environment = spawner_environment();
  pid_t pid = -1;
  int failed = ::posix_spawn(&pid, "/proc/self/exe", &with.actions,
                             &with.attributes, pointers_to(arguments).data(),
                             pointers_to(environment).data());
  if (failed != 0)
    return system_failure(
      ec::spawn, "cannot start this program again as the spawner", failed);
  return spawner_link{std::move(mine), pid, open_pidfd(pid)};
}

void run_spawner_if_asked(rank_main entry) {
  const char* value = std::getenv(spawner_variable);
  if (!value)
    return;
  auto parent = static_cast<pid_t>(std::atoi(value));
  ::unsetenv(spawner_variable);
  // The variable also reaches programs that something before this line
  // started; they have no such socket.
  auto peer = peer_of(spawner_fd);
  if (!peer || peer->pid != parent)
    return;
  ::fcntl(spawner_fd, F_SETFD, FD_CLOEXEC);
  spawner_loop{unique_fd{spawner_fd}, parent, entry}.run();
}

} // namespace troupe
