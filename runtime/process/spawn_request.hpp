#pragma once

#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// What a new rank process is to be.
struct spawn_request {
  /// Handed to `rank_main` as it is; at most 64 MiB.
  std::string payload;

  /// Variables of the program's environment that the process does not get, not
  /// even in `/proc/<pid>/environ`; a `*` stands for any characters, or none.
  /// If there are any, those with a login in a URL are not for it either.
  std::vector<std::string> hidden;

  /// Set before `rank_main` starts, over what the program's environment has.
  std::vector<std::pair<std::string, std::string>> environment;

  /// The cores the process may run on; empty leaves it unpinned. A host that
  /// refuses costs one line in the rank's output, not the rank.
  std::vector<int> cores;

  /// Where stdout and stderr go: appended to this file if it is not empty ...
  std::string log_path;

  /// ... else to this descriptor, else to the caller's own stdout and stderr.
  unique_fd output;

  /// Arrive in the process in this order; its numbers may differ. At most 200.
  std::vector<unique_fd> descriptors;
};

} // namespace troupe
