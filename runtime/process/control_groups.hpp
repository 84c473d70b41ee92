#pragma once

#include <string_view>
#include <vector>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// The control group of this process in one hierarchy.
struct control_group {
  bool is_v2 = false;
  fs::path mount; ///< Where the groups of the hierarchy are.

  /// This one, as seen from there: empty if it is that one, or not below it, as
  /// in a container that sees the names of its host.
  fs::path below;
};

/// Those in the hierarchies that may have *controller*, such as "cpu": of
/// version 1 with that name, and of version 2. *root* has `proc` and the mount
/// points.
std::vector<control_group> own_control_groups(std::string_view controller,
                                              const fs::path& root);

} // namespace troupe::internal
