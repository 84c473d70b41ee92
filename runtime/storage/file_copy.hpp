#pragma once

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// Whether the bytes of a copy are fsynced before it has its name.
enum class copy_sync : bool { no, yes };

/// A place in an open folder.
struct copy_target {
  int folder = -1; ///< Or `AT_FDCWD`.
  fs::path name;   ///< In it.
  fs::path path;   ///< Of the file, for the error's sentence.
};

/// Replaces the file *to* by a copy of *in*, the open file *from*, with its
/// mode: a reader finds the old file or the new one, even with concurrent
/// writers. Copies between any two file systems. *from* may grow meanwhile.
///
/// A process that is killed meanwhile leaves nothing, or, on a file system
/// without unnamed files (NFS), an `is_unfinished_copy`.
///
/// `ec::invalid_argument` for permanent failures: a name that is too long, a
/// missing permission, a folder or a pipe in the place of a file. `ec::storage`
/// for failures that may pass, such as a full disk.
expected<void> replace_by_copy(const unique_fd& in, const fs::path& from,
                               const copy_target& to, copy_sync sync);

/// Replaces the file *to* by a copy of the file *from*, as above; what is
/// missing above *to* is made, with the mode that the user's umask leaves.
expected<void> copy_file(const fs::path& from, const fs::path& to,
                         copy_sync sync);

/// Whether a killed process left the file *path*, unfinished or in the place of
/// an older copy. Its name has its inode, so that no user's file is one.
bool is_unfinished_copy(const fs::path& path);

} // namespace troupe::internal
