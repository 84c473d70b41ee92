#pragma once

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// A new folder that only this user can enter (mode 0700), under
/// `XDG_RUNTIME_DIR` or `/tmp`: short enough for a socket's path. Removed with
/// all that lies in it when this object goes, unless that is in a forked child.
class private_folder {
public:
  static expected<private_folder> make();

  private_folder(private_folder&& other) noexcept;
  private_folder& operator=(private_folder&& other) noexcept;
  ~private_folder();

  const fs::path& path() const noexcept { return path_; }

private:
  explicit private_folder(fs::path path);

  void remove() noexcept;

  fs::path path_; // empty: moved from
  int maker_;     // process id
};

} // namespace troupe
