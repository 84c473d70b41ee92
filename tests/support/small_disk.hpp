#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal::test {

/// A file system of *size* bytes ("1m") at *path*, if mounting is permitted.
class small_disk {
public:
  small_disk(fs::path path, const std::string& size) : path_(std::move(path)) {
    fs::create_directories(path_);
    auto options = "size=" + size;
    if (::mount("tmpfs", path_.c_str(), "tmpfs", 0, options.c_str()) == 0)
      mounted_ = true;
    else
      reason_ = std::generic_category().message(errno);
  }

  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;

  ~small_disk() {
    if (mounted_)
      ::umount2(path_.c_str(), MNT_DETACH);
  }

  explicit operator bool() const noexcept { return mounted_; }
  const std::string& reason() const noexcept { return reason_; }
  const fs::path& path() const noexcept { return path_; }

  /// Makes the file system read-only; returns false if that is impossible.
  bool make_read_only() {
    return ::mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY,
                   nullptr)
           == 0;
  }

private:
  fs::path path_;
  bool mounted_ = false;
  std::string reason_;
};

/// Leaves no byte free on the disk of *path*.
inline void fill_up(const fs::path& path) {
  auto file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  std::string block(4096, 'x');
  while (::write(file, block.data(), block.size()) > 0) {
  }
  ::close(file);
}

} // namespace troupe::internal::test
