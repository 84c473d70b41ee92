#pragma once

#include <utility>

#include "troupe/runtime/error.hpp"

namespace troupe {

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

  /// Gives the descriptor away without closing it.
  int release() noexcept { return std::exchange(fd_, -1); }

  /// Closes what is owned and owns *fd* instead.
  void reset(int fd = -1) noexcept;

private:
  int fd_ = -1;
};

/// A second descriptor, closed on exec, of what *fd* names; fails with
/// `ec::spawn` if *fd* is not open or no descriptor is left.
expected<unique_fd> duplicate(int fd);

} // namespace troupe
