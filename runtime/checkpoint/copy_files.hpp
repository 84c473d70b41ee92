#pragma once

#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe {

/// Copies every file below *source* to the same place below *target*, which is
/// made if missing and may not lie in *source*; a file that is there already is
/// replaced, atomically, and others stay. Symbolic links are followed, so that
/// the copy stands alone. What is true of the folder *source* only stays
/// behind: the manifest and half-written metadata of one that a run committed.
/// A file of the same name further down, or of the user, is copied.
/// `ec::storage` for a file that becomes shorter meanwhile. Nothing is fsynced.
expected<void> copy_files(const fs::path& source, const fs::path& target);

/// The same into the folder *target*, wherever that is by now: nothing is made
/// at its path, and no link in it is followed.
expected<void> copy_files(const fs::path& source, const held_folder& target);

/// As the latter, without a copy of the bytes where both
/// lie on one file system: the files get a second name. Returns what to remove
/// in *source* if the files are to be moved in the end. What lies behind a link
/// to a folder is copied, and not among that; of a link to a file only the link
/// is.
expected<std::vector<fs::path>> link_files(const fs::path& source,
                                           const held_folder& target);

/// The paths of those *files* below *folder* that have a second name elsewhere,
/// by which they may be written to.
expected<std::vector<std::string>>
shared_files(const held_folder& folder, const std::vector<file_entry>& files);

/// Gives the file *path* below *folder* bytes of its own, durably. The copy is
/// made in *staging*, a folder on the same file system.
expected<void> separate_file(const held_folder& folder, const fs::path& path,
                             const held_folder& staging);

} // namespace troupe
