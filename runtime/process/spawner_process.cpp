#include "troupe/runtime/process/spawner_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "troupe/runtime/process/become_rank.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/process/would_block.hpp"

namespace troupe::internal {
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
  return uninterrupted([&] { return ::waitpid(child, &status, WNOHANG); }) != 0;
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
    auto until =
      endings_.empty() ? clock_type::time_point::max() : endings_.front().due;
    if (wait_until_ready(waits, until) == wait_outcome::failed)
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
    if (n == 0 || (n < 0 && !is_temporary(errno)))
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
             "the spawner has no file descriptors left: RLIMIT_NOFILE allows "
             "no more");
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
    return refuse(id, spawn_failure("the spawner cannot make a file in memory")
                        .value()
                        .message);
  auto spawner = ::getpid();
  auto pid = ::fork();
  if (pid < 0)
    return refuse(id, spawn_failure("the spawner cannot fork").value().message);
  if (pid == 0) {
    ::prctl(PR_SET_NAME, program_name_);
    ranks_.clear();
    orphans_.clear();
    socket_.reset();
    parent_process_.reset();
    become_rank(entry_, spawner, std::move(*order), std::move(descriptors),
                std::move(words));
  }
  // By both, because either may be too late.
  ::setpgid(pid, pid);
  auto process = open_pidfd(pid);
  auto copy = process ? duplicate(process.get()) : expected<unique_fd>{};
  if (!process || !copy) {
    auto why =
      spawn_failure("the spawner cannot watch the process").value().message;
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
  if (ranks_.size() == 1)
    oom_.begin();
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
    if (how.how == process_exit::kind::signaled && how.code == SIGKILL
        && how.termination_message.empty() && oom_.explains_end())
      how.termination_message =
        "the kernel may have killed it for a lack of memory: oom_kill of its "
        "control group has risen";
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
    send(spawn_frame::ended, encode(rank_end{id, std::move(how)}));
  }
}

} // namespace troupe::internal
