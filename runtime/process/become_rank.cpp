#include "troupe/runtime/process/become_rank.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>
#include <system_error>
#include <vector>

#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/secrets.hpp"

namespace troupe::internal {
namespace {

bool has_become_rank = false;

void flush_everything() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

// exit() in a train loop runs this first of all handlers that existed before
// the fork. The destructors after it belong to the user's process, and other
// threads of the rank may still use those objects.
void leave_on_exit(int code, void*) {
  flush_everything();
  ::_exit(code);
}

void die_with(pid_t spawner) {
  // The rank's child processes can be killed with it: they are in its group, or
  // are reparented to the spawner when the rank ends.
  ::setpgid(0, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The spawner may have died before the line above.
  if (::getppid() != spawner)
    ::_exit(EXIT_FAILURE);
}

void reset_signals() {
  for (int signal : {SIGINT, SIGQUIT, SIGCHLD})
    ::signal(signal, SIG_DFL);
  leave_signals_to_the_driver();
  for (int signal : {SIGPIPE, SIGXFSZ})
    ::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void redirect(const unique_fd& output, const unique_fd& errors) {
  ::dup2(output.get(), STDOUT_FILENO);
  ::dup2(errors.get(), STDERR_FILENO);
  // A line in the log must not be lost by a later kill.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
}

void pin_to(const std::vector<int>& cores) {
  if (cores.empty())
    return;
  // A machine may have more cores than a `cpu_set_t`.
  std::vector<unsigned long> words(
    static_cast<std::size_t>(std::max(0, *std::ranges::max_element(cores)))
      / (8 * sizeof(unsigned long))
    + 1);
  auto bytes = words.size() * sizeof(unsigned long);
  auto set = reinterpret_cast<cpu_set_t*>(words.data());
  for (int core : cores)
    if (core >= 0)
      CPU_SET_S(static_cast<std::size_t>(core), bytes, set);
  if (::sched_setaffinity(0, bytes, set) != 0)
    std::cerr << "troupe: process " << ::getpid()
              << " is not pinned to its cores: "
              << std::system_category().message(errno) << std::endl;
}

void enter_folder(const unique_fd& folder) {
  if (::fchdir(folder.get()) == 0)
    return;
  auto code = errno;
  // Mostly the spawner is in that folder. If it is gone since, as on network
  // storage, the current folder is as well, and no relative path leads
  // elsewhere.
  struct stat ours {};
  if (::stat(".", &ours) != 0)
    return;
  write_termination_message(
    "could not enter the current folder of the program: "
    + std::system_category().message(code));
  ::_exit(EXIT_FAILURE);
}

// The strings that the program was started with, which the kernel shows as
// `/proc/<pid>/environ`; empty if they cannot be found.
std::pair<char*, char*> environment_block() {
  char text[4096] = {};
  unique_fd file{::open("/proc/self/stat", O_RDONLY | O_CLOEXEC)};
  if (!file || ::read(file.get(), text, sizeof(text) - 1) <= 0)
    return {};
  // Fields 50 and 51; the second, a name, may have blanks, and ends with `)`.
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at && field < 50; ++field)
    at = std::strchr(at + 1, ' ');
  std::uintptr_t begin = 0, end = 0;
  if (!at || std::sscanf(at, " %" SCNuPTR " %" SCNuPTR, &begin, &end) != 2)
    return {};
  return {reinterpret_cast<char*>(begin), reinterpret_cast<char*>(end)};
}

// Reads from an empty file: a value that the program gave to `putenv` may be in
// constant memory, which the kernel refuses to write. As a part of the
// program's file it stays there anyway.
void overwrite(const unique_fd& zeros, char* value, std::size_t size) {
  if (size == 0 || ::ftruncate(zeros.get(), static_cast<off_t>(size)) != 0)
    return;
  for (std::size_t done = 0; done < size;) {
    auto n =
      ::pread(zeros.get(), value + done, size - done, static_cast<off_t>(done));
    if (n == 0 || (n < 0 && errno != EINTR))
      return;
    done += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
}

// Overwrites the values as well: `unsetenv` alone leaves them in this process's
// memory, in its core dumps and in `/proc`.
void hide_variables(const std::vector<std::string>& hidden) {
  if (hidden.empty())
    return;
  std::vector<std::string> names;
  unique_fd zeros{::memfd_create("troupe-zeros", MFD_CLOEXEC)};
  auto erase = [&](char* variable) {
    auto size = std::strlen(variable);
    auto sign = std::find(variable, variable + size, '=');
    std::string_view name{variable, static_cast<std::size_t>(sign - variable)};
    if (sign == variable + size
        || (!holds_login({sign + 1, variable + size})
            && std::ranges::none_of(hidden, [&](const std::string& pattern) {
                 return is_variable_of(name, pattern);
               })))
      return;
    names.emplace_back(name);
    overwrite(zeros, sign + 1,
              static_cast<std::size_t>(variable + size - sign) - 1);
  };
  auto [begin, end] = environment_block();
  while (begin < end) {
    auto next = std::find(begin, end, '\0') + 1;
    if (next <= end)
      erase(begin);
    begin = next;
  }
  // Those that were set since, which lie elsewhere.
  for (auto variable = environ; variable && *variable; ++variable)
    erase(*variable);
  for (auto& name : names)
    ::unsetenv(name.c_str());
}

} // namespace

bool is_rank() noexcept {
  return has_become_rank;
}

void become_rank(rank_main entry, pid_t spawner, spawn_order order,
                 std::vector<unique_fd> descriptors,
                 unique_fd termination_message) noexcept {
  has_become_rank = true; // before the rank has threads
  die_with(spawner);
  reset_signals();
  redirect(descriptors.at(0), descriptors.at(1));
  keep_termination_message_in(termination_message.release());
  pin_to(order.cores);
  hide_variables(order.hidden);
  for (const auto& name : order.removed)
    ::unsetenv(name.c_str());
  for (const auto& [name, value] : order.environment)
    ::setenv(name.c_str(), value.c_str(), 1);
  ::on_exit(leave_on_exit, nullptr);
  std::size_t first = 2;
  if (order.has_folder)
    enter_folder(descriptors.at(first++));
  if (order.umask)
    ::umask(*order.umask);
  std::vector<int> numbers;
  for (std::size_t i = first; i < descriptors.size(); ++i)
    numbers.push_back(descriptors[i].release());
  descriptors.clear();
  int code = entry(std::move(order.payload), std::move(numbers));
  flush_everything();
  ::_exit(code);
}

} // namespace troupe::internal
