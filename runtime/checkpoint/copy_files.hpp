#pragma once

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// Copies every file below *source* to the same place below *target*, or moves
/// it there; symbolic links are followed, so that the copy stands alone (a link
/// to a file that was moved before it is an error). The manifest of a committed
/// *source* stays behind: it is true of that folder only. Nothing is fsynced.
expected<void> copy_files(const fs::path& source, const fs::path& target,
                          bool move);

} // namespace troupe
