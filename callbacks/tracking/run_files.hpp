#pragma once

#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

// Files of a run's folder are named by its journal and found on storage that
// others may write to: what is sent or shown of them lies in the folder, and no
// link leads out of it.

/// Opens the regular file *name*, a relative path, of the folder *run_path* for
/// reading. `ec::invalid_argument`: *name* leads out of the folder, or there is
/// a link in it; `ec::storage`: it cannot be opened.
expected<unique_fd> open_inside(const fs::path& run_path,
                                std::string_view name);

/// Whether *name* stays in the folder *run_path*; one that is missing does.
bool is_inside(const fs::path& run_path, std::string_view name);

} // namespace troupe
