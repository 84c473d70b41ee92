#include "troupe/runtime/process/pidfd.hpp"

#include <cerrno>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe {

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
  while (::poll(&wait, 1, timeout_ms) < 0 && errno == EINTR)
    continue;
  return wait.revents != 0;
}

} // namespace troupe
