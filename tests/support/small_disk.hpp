#pragma once

#include <sys/mount.h>

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

} // namespace troupe::internal::test
