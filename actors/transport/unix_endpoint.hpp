#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include <sys/types.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// Owns one file descriptor.
class file_descriptor {
public:
  explicit file_descriptor(int fd) noexcept : fd_(fd) {}
  file_descriptor(file_descriptor&& other) noexcept : fd_(other.release()) {}
  file_descriptor& operator=(file_descriptor&& other) noexcept;
  ~file_descriptor();

  int value() const noexcept { return fd_; }

  /// Gives ownership to the caller.
  int release() noexcept { return std::exchange(fd_, -1); }

private:
  int fd_; // negative: none
};

/// `/dev/null`, or none if the process has no descriptor left.
file_descriptor null_device() noexcept;

/// A listening socket at *path* that only this user may connect to.
expected<file_descriptor> listen_at(const fs::path& path);

/// A socket connected to *path*, whose listener belongs to this user.
expected<file_descriptor> connect_to(const fs::path& path,
                                     std::chrono::milliseconds timeout);

/// Who is at the other end of a Unix socket, as the kernel knows it.
struct peer_identity {
  pid_t pid;
  uid_t uid;
};

std::optional<peer_identity> peer_of(int socket) noexcept;

} // namespace troupe
