#pragma once

#include <map>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// The options of a tracker that is fed from a run's folder.
struct folder_options {
  std::string options; ///< For `make_sink`.
  /// What of the folder's options is in use, as `name=value`, for people.
  std::vector<std::string> taken;
  /// Options of the folder that only the caller may set, and did not.
  std::vector<std::string> unconfirmed;
};

/// What the caller sets, by name, as text; all but text in JSON's spelling.
using given_options = std::map<std::string, std::string>;

/// Decides which of the options *in_folder* (JSON) tracker *name* gets.
///
/// Whoever can write to a folder chooses what it says, while the credentials
/// are the caller's. So a folder may say what is shown and how. What names a
/// program, a server, a path or a profile, and any option that is not known to
/// be harmless, comes from *given* or is as by default; the folder's own value
/// counts only if it is that one.
expected<folder_options> choose_options(const std::string& name,
                                        const std::string& in_folder,
                                        const given_options& given);

} // namespace troupe
