#pragma once

#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe::internal {

/// Copies every file below *source* to the same place below *target*, which is
/// made if missing and may not lie in *source*; an existing file is replaced,
/// atomically, and others stay. Symbolic links are followed, so that the copy
/// is self-contained; `ec::invalid_argument` for one that leads back to a
/// folder on the way to it, or to one in which *target* lies. Files that belong
/// to the folder *source* only are left out: the manifest and half-written
/// metadata of a committed checkpoint, and what an earlier copy left that was
/// killed. A file of the same name in a subfolder, or of the user, is copied.
/// `ec::storage` for a file that shrinks meanwhile. Nothing is fsynced.
expected<void> copy_files(const fs::path& source, const fs::path& target);

/// The same into the folder *target*, even if it was renamed: nothing is
/// created at its path, and no link in it is followed.
expected<void> copy_files(const fs::path& source, const held_folder& target);

/// Like the latter, but on one file system the files get a second name instead
/// of a copy. Returns what to remove in *source* to complete a move. Files
/// behind a link to a folder, and those of a checkpoint that a run has (in
/// `checkpoints/`, with its manifest), are copied and not in that list; of a
/// link to a file only the link is.
expected<std::vector<fs::path>> link_files(const fs::path& source,
                                           const held_folder& target);

/// The paths of those *files* below *folder* that have a second name elsewhere,
/// through which they may be written to.
expected<std::vector<std::string>>
shared_files(const held_folder& folder, const std::vector<file_entry>& files);

/// Replaces the file *path* below *folder* by a copy of its own, durably. The
/// copy is made in *staging*, a folder on the same file system.
expected<void> separate_file(const held_folder& folder, const fs::path& path,
                             const held_folder& staging);

} // namespace troupe::internal
