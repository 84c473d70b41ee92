#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
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

/// Whether *name* is within the folder *run_path*; true for a missing file and
/// one below a folder that this user may not enter. An error if it cannot be
/// looked up now.
expected<bool> is_inside(const fs::path& run_path, std::string_view name);

struct artifact_file {
  fs::path path;
  std::string name; ///< That of the artifact, and what is below it.
};

/// The files of *x*: itself, or those below it if it is a folder. Fails if it
/// is neither, or no longer there.
expected<std::vector<artifact_file>> files_of(const logged_artifact& x);

/// *file*, which a record names, could not be read for *reason*. The record is
/// refused at once if the file is gone, else only if that lasts.
sink_failure unreadable_file(const fs::path& file, error reason);

} // namespace troupe::internal
