#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// `ec::storage` with the sentence "cannot <action> <path>: <errno's text>".
error storage_error(std::string_view action, const fs::path& path, int code);

/// Whether a call that failed with *code* may succeed later although nothing is
/// set up differently: the disk is full, or does not answer. Not if the path is
/// missing, or forbidden.
bool may_pass(int code) noexcept;

/// The file at a path.
struct file_status {
  fs::file_type type = fs::file_not_found;
  std::uint64_t size = 0;  ///< Bytes of a file.
  std::uint64_t links = 0; ///< Names that it has.

  bool exists() const noexcept { return type != fs::file_not_found; }
  bool is_file() const noexcept { return type == fs::regular_file; }
  bool is_folder() const noexcept { return type == fs::directory_file; }
  bool is_link() const noexcept { return type == fs::symlink_file; }
};

/// Looks *path* up, following symbolic links. Only ENOENT and ENOTDIR mean that
/// it is missing; any other failure is `ec::storage`: nothing may be concluded
/// from a disk that does not answer.
expected<file_status> look_up(const fs::path& path);

/// The same, without following a link at *path*.
expected<file_status> look_up_link(const fs::path& path);

/// The same of *name* in the folder *above* (`AT_FDCWD`: a path), with the
/// *flags* of `fstatat`; *path* is for the error's sentence.
expected<file_status> look_up_at(int above, const fs::path& name,
                                 const fs::path& path, int flags);

/// Whether *a* and *b* are the same file.
inline bool is_same_file(const struct stat& a, const struct stat& b) noexcept {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/// Whether *path* leads to the open *file*. An error if it cannot be looked up
/// now.
expected<bool> is_at(const unique_fd& file, const fs::path& path);

/// *path*, seen from the current folder if it is relative, without dots.
/// `ec::storage` if that folder is gone.
expected<fs::path> absolute_path(const fs::path& path);

/// Every regular file in the folder *path* and below, sorted; links to files
/// count, links to folders are not followed, unfinished copies are left out.
expected<std::vector<fs::path>> files_below(const fs::path& path);

/// What remains after a power cut right after a replacement.
enum class after_power_cut {
  new_file,
  new_or_old_file, ///< Saves an fsync of the folder where there is an old one.
};

/// Replaces the file *path* by one with *bytes*, or leaves the old one as it
/// is: a temporary file in the same folder, fsync, rename, fsync of the folder.
/// After a power cut there is what *left* says, never a part of a file.
expected<void> replace_file(const fs::path& path, std::string_view bytes,
                            after_power_cut left = after_power_cut::new_file);

/// The same in the open *folder*, even if that was renamed. One writer at a
/// time: all take the temporary name `<path>.new`. *made* receives the identity
/// of the new file before it has its name.
expected<void> replace_file_at(const unique_fd& folder, const fs::path& path,
                               std::string_view bytes,
                               after_power_cut left = after_power_cut::new_file,
                               struct stat* made = nullptr);

/// The same for a file that several processes may replace at once: each of them
/// succeeds and the last one stays. A killed process leaves a temporary file,
/// `<path>.NNNNNN`, that does not disturb others. The file is in the open
/// *folder*, even if that was renamed.
expected<void> replace_shared_file(const unique_fd& folder,
                                   const fs::path& path,
                                   std::string_view bytes);

/// A new file that no other writer uses.
struct temporary_file {
  fs::path path;
  unique_fd file;
  int code = 0; ///< What `errno` says if there is none.
};

/// Makes `<path>.NNNNNN` in the open *folder* (`AT_FDCWD`: at its path) with
/// *mode*, to which the system applies the process's mask.
temporary_file make_temporary(int folder, const fs::path& path, mode_t mode);

/// Writes all of *bytes* to a new file, which must not exist yet, and fsyncs
/// it. The folder is not fsynced.
expected<void> write_new_file(const fs::path& path, std::string_view bytes);

/// Writes all of *bytes* to the open *file* and fsyncs it; *path* is for the
/// error's sentence.
expected<void> write_durably(const unique_fd& file, const fs::path& path,
                             std::string_view bytes);

/// Writes *bytes* over the first ones of the open *file*, without fsync; *path*
/// is for the error's sentence.
expected<void> overwrite(const unique_fd& file, const fs::path& path,
                         std::string_view bytes);

/// `ec::storage` if *bytes* exceed the *limit* of readers of the file *path*:
/// data that cannot be read again must not be acknowledged.
expected<void> check_size(const fs::path& path, std::string_view bytes,
                          std::size_t limit);

/// The whole file. More than *limit* bytes are `ec::corrupt`, so that a damaged
/// size does not cause a huge allocation.
expected<std::string> read_file(const fs::path& path, std::size_t limit);

/// The same of a *file* that is open; *path* is for the error's sentence.
expected<std::string> read_open_file(const unique_fd& file,
                                     const fs::path& path, std::size_t limit);

/// *size* bytes of *file* from byte *begin*, or fewer if it ends before.
expected<std::string> read_range(const unique_fd& file, const fs::path& path,
                                 std::uint64_t begin, std::size_t size);

/// Opens *path* with *flags*; *action* is for the error's sentence. To write: a
/// file of mode 0600, never through a link (`open_own_file`); reading follows.
expected<unique_fd> open_file(const fs::path& path, int flags,
                              std::string_view action);

/// The same to read *name* in the folder *above*; *path* is for the sentence.
expected<unique_fd> open_to_read_at(int above, const fs::path& name,
                                    const fs::path& path, int flags,
                                    std::string_view action);

/// fsync of an open file. A failure is final: the kernel drops dirty pages once
/// it has reported them, so a second fsync could claim what is not true. Write
/// the data again under another name.
expected<void> sync_file(const unique_fd& file, const fs::path& path);

/// Makes names that were added to or removed from folder *path* durable.
expected<void> sync_folder(const fs::path& path);

/// Makes *path* and what is missing above it, with *mode* and each durable in
/// its parent.
expected<void> make_folders(const fs::path& path, mode_t mode = 0700);

/// Removes *path* and all below it; one that is missing is fine.
expected<void> remove_tree(const fs::path& path);

/// Renames without replacing: an existing *to* is `ec::conflict`.
expected<void> rename_new(const fs::path& from, const fs::path& to);

/// The same of names in the open folders *from_folder* and *to_folder*; the
/// paths are for the error's sentence.
expected<void> rename_new_at(int from_folder, const fs::path& from,
                             int to_folder, const fs::path& to);

} // namespace troupe::internal
