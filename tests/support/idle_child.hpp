#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

/// A process that this one has forked, which does nothing as long as this
/// object exists.
class idle_child {
public:
  idle_child() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      return;
    const unique_fd reader{ends[0]};
    life_.reset(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      char byte;
      while (::read(ends[0], &byte, 1) < 0 && errno == EINTR)
        ;
      ::_exit(0);
    }
  }

  idle_child(const idle_child&) = delete;
  idle_child& operator=(const idle_child&) = delete;

  ~idle_child() {
    life_.reset();
    if (pid_ > 0)
      uninterrupted([this] { return ::waitpid(pid_, nullptr, 0); });
  }

  bool is_there() const noexcept { return pid_ > 0; }

private:
  unique_fd life_;
  pid_t pid_ = -1;
};

} // namespace troupe::internal::test
