#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace troupe::test {

/// Runs *body* in a forked child and returns the status of `waitpid`. A body
/// that returns ends its child with exit code 0, an exception with 1.
template <class Body>
int run_in_child(Body body) {
  auto pid = ::fork();
  if (pid == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

} // namespace troupe::test
