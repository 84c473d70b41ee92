#pragma once

#include <sys/file.h>

#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unshared_fd.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe::internal {

/// Takes the `flock` of *file*, which is open at *path*, without waiting; false
/// if another process holds one.
expected<bool> lock_file(const unique_fd& file, const fs::path& path,
                         int how = LOCK_EX);

/// A file whose `flock` ends with this process, or earlier. A child that a
/// program forks gets `/dev/null` instead, and cannot release the lock either.
class own_lock {
public:
  own_lock() noexcept = default;

  /// Opens the file *name* of *folder* as `held_folder::open_file` does, for
  /// `lock_file`. Forks wait meanwhile, so that no child inherits the file, and
  /// with it the lock.
  static expected<own_lock> open(const held_folder& folder,
                                 const std::string& name, int flags,
                                 std::string_view action);

  own_lock(own_lock&& other) noexcept = default;
  own_lock& operator=(own_lock&& other) noexcept;
  ~own_lock() { reset(); }

  const unique_fd& file() const noexcept { return file_.file(); }
  explicit operator bool() const noexcept { return static_cast<bool>(file_); }

  /// Gives the lock back and closes the file.
  void reset() noexcept;

private:
  explicit own_lock(unshared_fd file) noexcept : file_(std::move(file)) {}

  unshared_fd file_;
};

/// The lock of a file that names its owner.
struct signed_lock {
  own_lock lock;      ///< Empty: another process has it.
  std::string holder; ///< What that process wrote; empty if it has not yet.
};

/// Opens or creates the file *name* of *folder*, takes its lock without waiting
/// and writes *owner* into it. What is written is for the sentences of others
/// only: a full disk does no harm.
expected<signed_lock> take_signed_lock(const held_folder& folder,
                                       const std::string& name,
                                       std::string_view owner);

} // namespace troupe::internal
