#pragma once

#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// Copies every file below *source* to the same place below *target*, which is
/// made if missing and may not lie in *source*; a file that is there already is
/// replaced, atomically, and others stay. Symbolic links are followed, so that
/// the copy stands alone. The manifest of a committed *source* stays behind: it
/// is true of that folder only. Nothing is fsynced.
expected<void> copy_files(const fs::path& source, const fs::path& target);

/// The same into a folder that exists, without a copy of the bytes where both
/// lie on one file system: the files get a second name. Returns what to remove
/// in *source* if the files are to be moved in the end.
expected<std::vector<fs::path>> link_files(const fs::path& source,
                                           const fs::path& target);

} // namespace troupe
