#pragma once

#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

// The journal names files of the run's folder, which is on storage that others
// may write to. Only files within the folder are sent or shown, and no link is
// followed.

/// Opens the regular file *name*, a relative path, of the folder *run_path* for
/// reading. `ec::invalid_argument`: *name* leads out of the folder, or there is
/// a link in it; `ec::storage`: it cannot be opened.
expected<unique_fd> open_inside(const fs::path& run_path,
                                std::string_view name);

/// Whether *name* is within the folder *run_path*; true for a missing file.
bool is_inside(const fs::path& run_path, std::string_view name);

} // namespace troupe::internal
