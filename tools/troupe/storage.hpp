#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

// Storage folders, and what the arguments of verbs name in them.

namespace troupe::tool {

/// A folder among runs that is not a run, or cannot be read.
struct strange_folder {
  fs::path path;
  error reason; ///< `ec::invalid_argument`: it is not a run's.
};

struct storage_content {
  fs::path path;
  std::vector<fs::path> runs;   ///< Sorted.
  std::vector<fs::path> sweeps; ///< Sorted.
  std::vector<strange_folder> strange;
};

/// What is in the storage folder *path*. `ec::invalid_argument` if it is not a
/// folder with runs or sweeps, or does not exist.
expected<storage_content> look_into(const fs::path& path);

/// The storage folder *given*, or TROUPE_STORAGE, or the default of a run.
expected<fs::path> storage_folder(const std::string& given);

/// Whether *text* may be the first digits of an id.
bool is_id(const std::string& text);

/// What an id leads to.
struct found_id {
  fs::path path;
  bool is_sweep = false;
};

/// The run or the sweep in *storage* whose id begins with *id*. Nothing: there
/// is none. `ec::invalid_argument` that names them: there are several.
expected<std::optional<found_id>> find_id(const std::string& id,
                                          const storage_content& storage);

/// What *given* may name, in the order of looking: a path, a name in *storage*.
expected<std::vector<fs::path>> paths_named(const std::string& given,
                                            const fs::path& storage);

/// The folder of the run called *given*: a path, a name in *storage*, or the
/// first digits of an id. `ec::invalid_argument` with near names if there is
/// none.
expected<fs::path> find_run(const std::string& given, const fs::path& storage);

/// The name of the run or sweep in *path*, as arguments have it: that of a
/// trial is `lr-search/trial-0003`.
std::string shown_name(const fs::path& path);

/// Whether *path* is the folder of a run.
expected<bool> is_run(const fs::path& path);

} // namespace troupe::tool
