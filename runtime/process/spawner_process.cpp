#include "troupe/runtime/process/spawner_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
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

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/processes.hpp"
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
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores)
    if (core >= 0 && core < CPU_SETSIZE)
      CPU_SET(core, &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0)
    std::cerr << "troupe: process " << ::getpid()
              << " is not pinned to its cores: "
              << std::system_category().message(errno) << std::endl;
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

void become_rank(rank_start start) noexcept {
  has_become_rank = true; // before the rank has threads
  die_with(start.spawner);
  reset_signals();
  redirect(start.descriptors.at(0), start.descriptors.at(1));
  keep_termination_message_in(start.termination_message.release());
  pin_to(start.order.cores);
  hide_variables(start.order.hidden);
  for (const auto& [name, value] : start.order.environment)
    ::setenv(name.c_str(), value.c_str(), 1);
  ::on_exit(leave_on_exit, nullptr);
  std::vector<int> descriptors;
  for (std::size_t i = 2; i < start.descriptors.size(); ++i)
    descriptors.push_back(start.descriptors[i].release());
  start.descriptors.clear();
  int code =
    start.entry(std::move(start.order.payload), std::move(descriptors));
  flush_everything();
  ::_exit(code);
}

namespace {

using clock_type = std::chrono::steady_clock;

/// How long the end of a rank waits for its leftover processes. Killed
/// processes end in milliseconds unless they wait for a disk.
constexpr std::chrono::seconds orphan_limit{1};

void wait_for(pid_t child) {
  uninterrupted([&] { return ::waitpid(child, nullptr, 0); });
}

/// Takes the *status* of an ended child, without waiting. Returns false if a
/// debugger that traced it has still to take it, which may never happen.
bool take_status(pid_t child, int& status) {
  pid_t found = 0;
  do {
    found = ::waitpid(child, &status, WNOHANG);
  } while (found < 0 && errno == EINTR);
  return found != 0;
}

} // namespace

spawner_loop::spawner_loop(unique_fd socket, pid_t parent, rank_main entry)
  : socket_{std::move(socket)}, parent_{parent}, entry_{entry} {
  ::prctl(PR_GET_NAME, program_name_);
}

void spawner_loop::detach() {
  // The death of the user's process shows as the end of the socket and of its
  // pidfd. A parent-death signal would be too early: it shows the end of the
  // thread that forked. It only wakes a stopped spawner.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  ::prctl(PR_SET_NAME, "troupe-spawner");
  ::setsid(); // No Ctrl-C, no hang-up of the terminal.
  // Blocked rather than ignored: a signal to a rank that has not installed its
  // handlers yet then waits instead of being dropped.
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::signal(SIGCHLD, SIG_DFL);
  // A pipe that the user's process prints to must end with that process.
  unique_fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    ::dup2(null.get(), fd);
  // Orphaned descendants are reparented to this process.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  earlier_children_ = own_children();
  parent_process_ = open_pidfd(parent_);
  if (::getppid() != parent_)
    finish();
}

void spawner_loop::run() {
  detach();
  send(spawn_frame::hello, {});
  for (;;) {
    await_socket();
    serve_frame();
  }
}

void spawner_loop::finish() {
  for (const auto& rank : ranks_) {
    ::kill(-rank.pid, SIGKILL);
    send_signal(rank.process, SIGKILL);
  }
  // As long as one of them is there, in a disk's hands, it may leave orphans.
  for (kill_orphans(); !ranks_.empty() || !orphans_.empty(); kill_orphans()) {
    std::vector<pollfd> waits;
    watch_ends(waits);
    if (::poll(waits.data(), waits.size(), -1) > 0)
      reap_ended(waits.data());
  }
  ::_exit(EXIT_SUCCESS);
}

void spawner_loop::watch_ends(std::vector<pollfd>& waits) const {
  for (const auto& rank : ranks_)
    waits.push_back({rank.process.get(), POLLIN, 0});
  for (const auto& x : orphans_)
    waits.push_back({x.process.get(), POLLIN, 0});
}

bool spawner_loop::reap_ended(const pollfd* ends) {
  int status = 0;
  std::erase_if(traced_, [&](pid_t pid) { return take_status(pid, status); });
  bool changed = false;
  for (std::size_t i = orphans_.size(); i > 0; --i) {
    if (ends[ranks_.size() + i - 1].revents == 0)
      continue;
    if (auto pid = orphans_[i - 1].pid; !take_status(pid, status))
      traced_.push_back(pid);
    orphans_.erase(orphans_.begin() + static_cast<std::ptrdiff_t>(i - 1));
    changed = true;
  }
  for (std::size_t i = ranks_.size(); i > 0; --i) {
    if (ends[i - 1].revents == 0)
      continue;
    reap_rank(i - 1);
    changed = true;
  }
  return changed;
}

void spawner_loop::await_socket() {
  for (;;) {
    // Not by SIGCHLD: a program that was started again as a spawner may have
    // threads that would take it.
    std::vector<pollfd> waits{{socket_.get(), POLLIN, 0},
                              {parent_process_.get(), POLLIN, 0}};
    watch_ends(waits);
    int timeout_ms = -1;
    if (!endings_.empty())
      timeout_ms = static_cast<int>(
        std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(
                                    endings_.front().due - clock_type::now())
                                    .count()));
    if (::poll(waits.data(), waits.size(), timeout_ms) < 0)
      continue;
    if (waits[1].revents != 0)
      finish();
    if (reap_ended(waits.data() + 2))
      kill_orphans();
    report_endings();
    if (waits[0].revents != 0)
      return;
  }
}

std::string spawner_loop::receive(std::size_t size,
                                  std::vector<unique_fd>& descriptors) {
  std::string bytes(size, '\0');
  for (std::size_t done = 0; done < size;) {
    await_socket();
    auto n = receive_with_descriptors(socket_.get(), bytes.data() + done,
                                      size - done, descriptors);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
      finish();
    done += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  return bytes;
}

void spawner_loop::send(spawn_frame kind, std::string_view body,
                        std::vector<unique_fd> descriptors) {
  auto frame = make_frame(kind, body, descriptors.size());
  std::string_view rest = frame;
  while (!rest.empty()) {
    auto n = send_with_descriptors(socket_.get(), rest, descriptors);
    if (n < 0 && errno != EINTR)
      finish();
    if (n <= 0)
      continue;
    descriptors.clear();
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void spawner_loop::serve_frame() {
  std::vector<unique_fd> descriptors;
  auto bytes = receive(sizeof(spawn_frame_header), descriptors);
  spawn_frame_header header;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&header));
  if (header.size > max_spawn_frame)
    finish();
  auto body = receive(header.size, descriptors);
  if (header.kind == spawn_frame::start) {
    // The kernel drops descriptors that this process has no room for.
    if (descriptors.size() != header.descriptors)
      refuse(spawn_reader{body}.number(),
             "the spawner has no file descriptors left");
    else
      start(body, std::move(descriptors));
  } else if (header.kind == spawn_frame::signal) {
    signal_rank(body);
  }
}

void spawner_loop::start(std::string_view body,
                         std::vector<unique_fd> descriptors) {
  auto order = decode_spawn_order(body);
  if (!order)
    return refuse(spawn_reader{body}.number(), order.error().message);
  auto id = order->id;
  unique_fd words{::memfd_create("troupe-last-words", MFD_CLOEXEC)};
  if (!words)
    return refuse(id,
                  system_failure(ec::spawn, "memfd_create").value().message);
  auto spawner = ::getpid();
  auto pid = ::fork();
  if (pid < 0)
    return refuse(id, system_failure(ec::spawn, "fork").value().message);
  if (pid == 0) {
    ::prctl(PR_SET_NAME, program_name_);
    ranks_.clear();
    orphans_.clear();
    socket_.reset();
    parent_process_.reset();
    become_rank({entry_, spawner, std::move(*order), std::move(descriptors),
                 std::move(words)});
  }
  // By both, because either may be too late.
  ::setpgid(pid, pid);
  auto process = open_pidfd(pid);
  auto copy = process ? duplicate(process.get()) : expected<unique_fd>{};
  if (!process || !copy) {
    auto why = system_failure(ec::spawn, "pidfd_open").value().message;
    ::kill(pid, SIGKILL);
    wait_for(pid);
    return refuse(id, why);
  }
  ranks_.push_back({id, pid, std::move(process), std::move(words)});
  spawn_writer answer;
  answer.put(id);
  answer.put(static_cast<std::uint64_t>(pid));
  std::vector<unique_fd> with;
  with.push_back(std::move(*copy));
  send(spawn_frame::started, answer.take(), std::move(with));
}

void spawner_loop::refuse(std::uint64_t id, std::string_view why) {
  spawn_writer answer;
  answer.put(id);
  answer.put(why);
  send(spawn_frame::refused, answer.take());
}

void spawner_loop::signal_rank(std::string_view body) {
  spawn_reader in{body};
  auto id = in.number();
  auto signal = static_cast<int>(in.number());
  for (const auto& rank : ranks_)
    if (rank.id == id)
      send_signal(rank.process, signal);
}

void spawner_loop::reap_rank(std::size_t index) {
  auto rank = std::move(ranks_[index]);
  ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(index));
  // Before its number can be reused.
  ::kill(-rank.pid, SIGKILL);
  auto words = read_termination_message(rank.termination_message.get());
  process_exit how;
  if (int status = 0; take_status(rank.pid, status)) {
    how = process_exit_of(status, std::move(words));
  } else {
    traced_.push_back(rank.pid);
    how = {process_exit::kind::lost, 0,
           words.empty() ? "ended; how, only the debugger knows that traced it"
                         : std::move(words)};
  }
  endings_.push_back(
    {rank.id, std::move(how), clock_type::now() + orphan_limit});
}

void spawner_loop::kill_orphans() {
  auto is_known = [this](pid_t pid) {
    auto same = [pid](const auto& x) { return x.pid == pid; };
    return std::any_of(ranks_.begin(), ranks_.end(), same)
           || std::any_of(orphans_.begin(), orphans_.end(), same)
           || std::ranges::count(earlier_children_, pid)
           || std::ranges::count(traced_, pid);
  };
  for (auto pid : own_children()) {
    if (is_known(pid))
      continue;
    // A child that was not waited for keeps its number.
    ::kill(pid, SIGKILL);
    if (auto process = open_pidfd(pid))
      orphans_.push_back({pid, std::move(process)});
  }
}

void spawner_loop::report_endings() {
  while (!endings_.empty()
         && (orphans_.empty() || endings_.front().due <= clock_type::now())) {
    auto [id, how, due] = std::move(endings_.front());
    endings_.erase(endings_.begin());
    spawn_writer answer;
    answer.put(id);
    answer.put(static_cast<std::uint64_t>(how.how));
    answer.put(static_cast<std::uint64_t>(how.code));
    answer.put(std::string_view{how.termination_message});
    send(spawn_frame::ended, answer.take());
  }
}

} // namespace troupe::internal
