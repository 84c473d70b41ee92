#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// A folder that is held by a descriptor: its files are reached whatever
/// becomes of its path, and never through a symbolic link.
///
/// Names are single path components. Files are made with mode 0600, folders
/// with 0700. A link where a file or folder of ours belongs is `ec::storage`:
/// whoever put it there wants another file to be written to.
class held_folder {
public:
  held_folder() = default;

  /// Opens the folder *path*, whose last component may not be a link.
  static expected<held_folder> open(const fs::path& path);

  /// Opens the folder *name* in this one; one that is missing is made, durably.
  expected<held_folder> folder(const std::string& name) const;

  /// Opens the file *name* with *flags*; *action* is for the error's sentence.
  expected<unique_fd> open_file(const std::string& name, int flags,
                                std::string_view action) const;

  /// As the functions of those names for paths: see `durable_file.hpp`. *made*
  /// gets what the new file is, before it has its name.
  expected<std::string> read_file(const std::string& name,
                                  std::size_t limit) const;
  expected<void> replace_file(const std::string& name, std::string_view bytes,
                              struct stat* made = nullptr) const;

  /// The names of what is in the folder, sorted.
  expected<std::vector<std::string>> names() const;

  /// Removes the file *name*; one that is missing is fine.
  expected<void> remove_file(const std::string& name) const;

  /// As `fstatat` without following links: 0, or what `errno` says.
  int look_up(const std::string& name, struct stat& found) const noexcept;

  /// Whether *path()* still leads to this folder. An error if it cannot be
  /// looked up now.
  expected<bool> is_at_its_path() const;

  const unique_fd& descriptor() const noexcept { return folder_; }

  /// As it was opened.
  const fs::path& path() const noexcept { return path_; }

private:
  held_folder(unique_fd folder, fs::path path)
    : folder_(std::move(folder)), path_(std::move(path)) {}

  static expected<held_folder> open_at(int above, const char* name,
                                       const fs::path& path);

  unique_fd folder_;
  fs::path path_;
};

/// Whether *a* and *b* are the same file.
inline bool is_same_file(const struct stat& a, const struct stat& b) noexcept {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

} // namespace troupe
