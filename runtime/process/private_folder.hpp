#pragma once

#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// A folder for sockets that only this user can enter, removed with all in it
/// at destruction.
///
/// Lies in $XDG_RUNTIME_DIR, or in /tmp if that is unset, unusable or so long
/// that a socket's path would not fit (107 bytes). The name holds the pid and
/// start time of its process, so that what a killed process left behind is
/// told apart from what is in use.
class private_folder {
public:
  /// Fails with `ec::storage`.
  static expected<private_folder> make();

  /// Removes the folders of this user whose processes are gone; returns how
  /// many. In use by several processes at once without harm.
  static int remove_stale();

  private_folder(private_folder&& other) noexcept;
  private_folder& operator=(private_folder&& other) noexcept;
  ~private_folder();

  const std::string& path() const noexcept { return path_; }

private:
  explicit private_folder(std::string path);

  std::string path_;
  int owner_ = 0; // A forked copy must not remove it.
};

} // namespace troupe
