#include "troupe/runtime/process/descriptor.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

void unique_fd::reset(int fd) noexcept {
  if (fd_ >= 0)
    ::close(fd_);
  fd_ = fd;
}

wake_event::wake_event() noexcept
  : event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {}

void wake_event::notify(int fd) noexcept {
  ::eventfd_write(fd, 1); // Fails only if it is readable already.
}

void wake_event::clear() const noexcept {
  eventfd_t count = 0;
  ::eventfd_read(fd(), &count); // Fails only if it is not readable.
}

wait_outcome
wait_until_ready(std::span<pollfd> waits,
                 std::chrono::steady_clock::time_point deadline) noexcept {
  using clock = std::chrono::steady_clock;
  constexpr std::int64_t longest = std::numeric_limits<int>::max();
  for (;;) {
    std::int64_t timeout = -1;
    if (deadline != clock::time_point::max())
      timeout = std::clamp<std::int64_t>(
        std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now())
          .count(),
        0, longest);
    auto ready = ::poll(waits.data(), waits.size(), static_cast<int>(timeout));
    if (ready > 0)
      return wait_outcome::ready;
    if (ready < 0 && errno != EINTR)
      return wait_outcome::failed;
    if (ready == 0 && timeout < longest)
      return wait_outcome::late;
  }
}

wait_outcome
wait_until_ready(int fd, short events,
                 std::chrono::steady_clock::time_point deadline) noexcept {
  pollfd wait{fd, events, 0};
  return wait_until_ready(std::span{&wait, 1}, deadline);
}

expected<unique_fd> duplicate(int fd) {
  unique_fd result{::fcntl(fd, F_DUPFD_CLOEXEC, 0)};
  if (!result)
    return system_failure(ec::spawn,
                          concat("cannot duplicate descriptor ", fd));
  return result;
}

expected<void> open_standard_descriptors() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0)
      continue;
    // Gets the lowest free number: this one, unless another thread has just
    // opened a file, which then has it.
    auto opened = ::open("/dev/null", O_RDWR);
    if (opened < 0)
      return system_failure(ec::spawn,
                            concat("cannot open /dev/null for the closed "
                                   "standard descriptor ",
                                   fd));
    if (opened != fd)
      ::close(opened);
  }
  return {};
}

expected<std::pair<unique_fd, unique_fd>> socket_pair(std::string what) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_failure(ec::spawn, std::move(what));
  return std::pair{unique_fd{ends[0]}, unique_fd{ends[1]}};
}

tl::unexpected<error> system_failure(ec code, std::string what,
                                     int error_number) {
  what += ": " + std::system_category().message(error_number);
  return failure(code, std::move(what));
}

expected<unique_fd> open_own_file(int above, const char* name, int flags,
                                  ec code, std::string what) {
  auto fd = uninterrupted([&] {
    return ::openat(above, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                    0600);
  });
  unique_fd file{fd};
  struct stat found {};
  auto problem = !file || ::fstat(fd, &found) != 0 ? errno : 0;
  if (problem == ELOOP)
    return failure(
      code, what + ": it is a symbolic link, which Troupe never creates");
  if (problem == ENXIO // a pipe that no one reads
      || (problem == 0 && !S_ISREG(found.st_mode)))
    return failure(code, what + ": it is not a file");
  if (problem != 0)
    return system_failure(code, std::move(what), problem);
  // A program that gets it as standard output does not expect EAGAIN.
  ::fcntl(file.get(), F_SETFL, flags & O_APPEND);
  return file;
}

// The system calls themselves: <sys/pidfd.h> of glibc 2.36 declares its
// functions without C linkage.
unique_fd open_pidfd(pid_t pid) noexcept {
  return unique_fd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
}

void send_signal(const unique_fd& process, int signal) noexcept {
  ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

bool has_ended(const unique_fd& process, int timeout_ms) noexcept {
  pollfd wait{process.get(), POLLIN, 0};
  uninterrupted([&] { return ::poll(&wait, 1, timeout_ms); });
  return wait.revents != 0;
}

expected<peer_credentials> peer_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return system_failure(ec::protocol, "cannot tell whose socket it is");
  // Anything but a connected Unix socket answers without a process.
  if (peer.pid == 0)
    return failure(ec::protocol,
                   "cannot tell whose socket it is: no process at its end");
  return peer_credentials{peer.pid, peer.uid};
}

} // namespace troupe::internal
