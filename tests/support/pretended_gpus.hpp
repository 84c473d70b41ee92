#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal::test {

/// Gives this process and its children a `/dev` with *count* cards of NVIDIA,
/// which are empty files: Troupe counts them, and CUDA finds none. *work* is an
/// empty folder. Returns whether mounting is permitted; if not, nothing has
/// changed for other processes.
inline bool pretend_gpus(int count, const fs::path& work) {
  if (::unshare(CLONE_NEWNS) != 0
      || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0
      || ::mount("tmpfs", work.c_str(), "tmpfs", 0, nullptr) != 0)
    return false;
  auto make_file = [&work](const std::string& name) {
    auto path = work / name;
    ::close(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    return path;
  };
  for (auto name : {"null", "zero", "random", "urandom"}) {
    auto path = make_file(name);
    auto real = fs::path{"/dev"} / name;
    if (::mount(real.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0)
      return false;
  }
  fs::create_directory(work / "shm");
  fs::create_symlink("/proc/self/fd", work / "fd");
  for (int i = 0; i < count; ++i)
    make_file("nvidia" + std::to_string(i));
  return ::mount(work.c_str(), "/dev", nullptr, MS_BIND | MS_REC, nullptr) == 0;
}

} // namespace troupe::internal::test
