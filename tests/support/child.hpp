#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

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

/// Whether *check* returns true, without throwing, in a process whose current
/// folder has been removed.
template <class Check>
bool holds_without_current_folder(Check check) {
  temporary_folder storage;
  auto status = run_in_child([&] {
    fs::create_directory(storage / "gone");
    fs::current_path(storage / "gone");
    fs::remove(storage / "gone");
    ::_exit(check() ? 0 : 2);
  });
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Whether *check* returns true in a process of a user unknown to the host,
/// without HOME, in the folder *current*. For root only.
template <class Check>
bool holds_without_home(const fs::path& current, Check check) {
  auto status = run_in_child([&] {
    fs::permissions(current, fs::owner_all | fs::group_exe | fs::others_exe);
    fs::current_path(current);
    ::unsetenv("HOME");
    if (::seteuid(54321) != 0)
      ::_exit(3);
    ::_exit(check() ? 0 : 2);
  });
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace troupe::internal::test
