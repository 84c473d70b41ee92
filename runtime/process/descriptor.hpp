#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Owns one file descriptor and closes it once.
class unique_fd {
public:
  unique_fd() noexcept = default;

  /// Takes over *fd*; a negative number is nothing.
  explicit unique_fd(int fd) noexcept : fd_{fd} {}

  unique_fd(unique_fd&& other) noexcept : fd_{other.release()} {}

  unique_fd& operator=(unique_fd&& other) noexcept {
    reset(other.release());
    return *this;
  }

  ~unique_fd() { reset(); }

  int get() const noexcept { return fd_; }

  explicit operator bool() const noexcept { return fd_ >= 0; }

  /// Releases the descriptor without closing it.
  int release() noexcept { return std::exchange(fd_, -1); }

  /// Closes the descriptor and owns *fd* instead.
  void reset(int fd = -1) noexcept;

private:
  int fd_ = -1;
};

/// Wakes threads that wait in `poll`.
class wake_event {
public:
  wake_event() noexcept;

  /// False if no descriptor was left: `notify` then does nothing.
  explicit operator bool() const noexcept { return static_cast<bool>(event_); }

  /// Readable from `notify` to `clear`.
  int fd() const noexcept { return event_.get(); }

  /// Never waits; a signal handler may call it.
  void notify() const noexcept { notify(fd()); }

  /// The same with a descriptor that `fd` returned.
  static void notify(int fd) noexcept;

  void clear() const noexcept;

private:
  unique_fd event_;
};

/// Returns what *call*, a system call, returns; repeats it while signals
/// interrupt it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR)
    result = call();
  return result;
}

/// How a wait for descriptors ended.
enum class wait_outcome : std::uint8_t {
  ready,  ///< At least one has an event, or an error.
  late,   ///< None had one by the deadline.
  failed, ///< `errno` says why.
};

/// Waits until one of *waits* is ready, which their `revents` then show, or
/// until *deadline*; with one that has passed, it looks and does not wait.
/// Signals do not end it.
wait_outcome
wait_until_ready(std::span<pollfd> waits,
                 std::chrono::steady_clock::time_point deadline) noexcept;

/// The same for *events* of *fd* alone.
wait_outcome
wait_until_ready(int fd, short events,
                 std::chrono::steady_clock::time_point deadline) noexcept;

/// A second descriptor, closed on exec, of what *fd* names; fails with
/// `ec::spawn` if *fd* is not open or no descriptor is left.
expected<unique_fd> duplicate(int fd);

/// Opens `/dev/null` for each standard descriptor that is closed: the next
/// socket or file would get its number, and all output of the program.
expected<void> open_standard_descriptors();

/// Two Unix stream sockets that are connected to each other, closed on exec;
/// fails with `ec::spawn` and "<what>: <reason>".
expected<std::pair<unique_fd, unique_fd>> socket_pair(std::string what);

/// "<what>: <what the system says about errno>" as a failure.
tl::unexpected<error> system_failure(ec code, std::string what,
                                     int error_number = errno);

/// Opens *name* in the folder *above* (`AT_FDCWD`: the path *name*) with
/// *flags*, as a file that Troupe writes: never through a symbolic link, never
/// waiting for a pipe, and made with mode 0600.
///
/// Fails with *code* and "<what>: <reason>", also if it is not a file.
expected<unique_fd> open_own_file(int above, const char* name, int flags,
                                  ec code, std::string what);

/// A descriptor that names process *pid* even after its end and becomes
/// readable with it; empty if there is no such process.
unique_fd open_pidfd(pid_t pid) noexcept;

/// Sends *signal* to the process that *process* names; does nothing if it has
/// ended.
void send_signal(const unique_fd& process, int signal) noexcept;

/// Waits until *process* has ended, at most *timeout_ms* (-1: without limit).
/// Returns whether it has.
bool has_ended(const unique_fd& process, int timeout_ms) noexcept;

/// The process at the other end of a Unix socket.
struct peer_credentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

/// Asks the kernel about the peer of the connected Unix socket *fd*;
/// `ec::protocol` if it is not one.
expected<peer_credentials> peer_of(int fd);

} // namespace troupe::internal
