#pragma once

#include <utility>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// While it exists, no thread of this process forks. It may last: other pauses
/// begin, and `unshared_fd`s are made and closed meanwhile.
class fork_pause {
public:
  fork_pause();
  fork_pause(const fork_pause&) = delete;
  fork_pause& operator=(const fork_pause&) = delete;
  ~fork_pause();
};

/// A descriptor that ends with this process, or earlier.
///
/// A child that a program forks without exec inherits all others: a lock, a
/// connection or a port ends only when the last process has closed it. So a
/// child gets `/dev/null` instead, at the same number, which copies of the
/// owner may use and close there. A program that is executed gets neither.
class unshared_fd {
public:
  unshared_fd() noexcept = default;

  /// Takes over *fd*. A child that was forked since that was opened has it.
  unshared_fd(unique_fd fd) noexcept;

  /// The same for *fd* that was opened in this pause: there is no such child.
  unshared_fd(unique_fd fd, const fork_pause&) noexcept
    : unshared_fd(std::move(fd)) {}

  unshared_fd(unshared_fd&& other) noexcept
    : fd_(std::move(other.fd_)), number_(std::exchange(other.number_, -1)) {}

  unshared_fd& operator=(unshared_fd&& other) noexcept;

  ~unshared_fd() { reset(); }

  int get() const noexcept { return number_; }
  const unique_fd& file() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

  /// Closes it. Others that are made or closed wait meanwhile.
  void reset() noexcept;

  /// Gives the descriptor to the caller, who closes it in this pause. For files
  /// that the storage closes slowly: nothing but forks waits.
  unique_fd release(const fork_pause&) noexcept;

  /// Gives the descriptor to the caller, who closes it after this object: until
  /// then no child gets it.
  int give_away() noexcept { return fd_.release(); }

private:
  unique_fd fd_; ///< Empty if it was given away.
  int number_ = -1;
};

} // namespace troupe::internal
