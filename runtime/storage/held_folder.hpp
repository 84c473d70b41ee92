#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal {

/// `ec::storage` with the sentence "<what> <path> is gone: it was <how>".
error gone_error(std::string_view what, const fs::path& path,
                 std::string_view how = "removed, renamed or replaced while "
                                        "the run was writing to it");

/// A folder that is held by a descriptor: its files are reached even if it is
/// renamed, and never through a symbolic link.
///
/// Names are single path components. Files are made with mode 0600, folders
/// with 0700. A link in the place of a file or folder of ours is `ec::storage`:
/// it would redirect our writes.
class held_folder {
public:
  held_folder() = default;

  /// Opens the folder *path*, whose last component may not be a link.
  /// `ec::storage` if it does not have *inode* (0: any).
  static expected<held_folder> open(const fs::path& path,
                                    std::uint64_t inode = 0);

  /// For readers: opens the folder that *path* leads to, through links or not.
  static expected<held_folder> follow(const fs::path& path);

  /// Another descriptor of the same folder.
  expected<held_folder> duplicate() const;

  /// Opens the folder *name* in this one; one that is missing is made, durably.
  expected<held_folder> folder(const std::string& name) const;

  /// The same, but a new one is durable only after `sync`.
  expected<held_folder> make_folder(const std::string& name) const;

  /// Makes *path* below this folder and what is missing on the way to it, which
  /// may lead through links; not durable.
  expected<void> make_folders(const fs::path& path) const;

  /// Opens the folder *path* below this one, name by name; it must exist.
  expected<held_folder> existing(const fs::path& path) const;

  /// Opens the file *name* with *flags*; *action* is for the error's sentence.
  expected<unique_fd> open_file(const std::string& name, int flags,
                                std::string_view action) const;

  /// As the functions of those names for paths: see `durable_file.hpp`. *made*
  /// receives the identity of the new file before it has its name.
  expected<std::string> read_file(const std::string& name,
                                  std::size_t limit) const;
  expected<void> write_new_file(const std::string& name,
                                std::string_view bytes) const;
  expected<void> replace_file(const std::string& name, std::string_view bytes,
                              struct stat* made = nullptr) const;

  /// The names of what is in the folder, sorted.
  expected<std::vector<std::string>> names() const;

  /// Removes the file *name*; one that is missing is fine.
  expected<void> remove_file(const std::string& name) const;

  /// Removes *name* and all below it; one that is missing is fine.
  expected<void> remove_tree(const std::string& name) const;

  /// Gives *from* in this folder the name *name* in *to*, without replacing:
  /// one that exists is `ec::conflict`.
  expected<void> rename_new(const std::string& from, const held_folder& to,
                            const std::string& name) const;

  /// Makes names that were added or removed durable.
  expected<void> sync() const;

  /// What the path *name* below this folder leads to; see `look_up` and
  /// `look_up_link` of paths.
  expected<file_status> look_up(const fs::path& name) const;
  expected<file_status> look_up_link(const fs::path& name) const;

  /// As `fstatat` without following links: 0, or what `errno` says.
  int look_up(const std::string& name, struct stat& found) const noexcept;

  /// Whether *path()* still leads to this folder. An error if it cannot be
  /// looked up now.
  expected<bool> is_at_its_path() const;

  /// The folder's inode; 0 if it cannot be looked up now.
  std::uint64_t inode() const noexcept;

  const unique_fd& descriptor() const noexcept { return folder_; }

  /// Gives the descriptor away.
  unique_fd release() && noexcept { return std::move(folder_); }

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

/// What has a name in a folder, whatever has that name later.
class held_entry {
public:
  /// *above* must outlive the result.
  static expected<held_entry> open(const held_folder& above, std::string name);

  /// Gives it the name *to*, and nothing else: what another process has put in
  /// its place meanwhile gets its own name back.
  expected<void> rename(const std::string& to) const;

private:
  held_entry(const held_folder& above, unique_fd entry, std::string name)
    : above_(above), entry_(std::move(entry)), name_(std::move(name)) {}

  const held_folder& above_;
  unique_fd entry_;
  std::string name_;
};

} // namespace troupe::internal
