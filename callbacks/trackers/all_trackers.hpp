#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

// For `troupe sync`: the trackers by name, and what it takes from a run's
// folder. The folders of the trackers do not include each other, and
// `tracking/` includes none of them.

/// Whether `make_sink` knows *name*.
bool has_tracker(const std::string& name);

/// The sink called *name*, built from the JSON of `sink::options`.
/// `ec::unsupported`: there is no such sink, or its options are of another
/// version.
expected<std::unique_ptr<sink>> make_sink(const std::string& name,
                                          const std::string& options);

/// The options of a tracker that is fed from a run's folder.
struct folder_options {
  std::string options; ///< For `make_sink`.
  /// The folder's options in use, as `name=value`, for the user.
  std::vector<std::string> taken;
  /// Options of the folder that only the caller may set, and did not.
  std::vector<std::string> unconfirmed;
};

/// The caller's options by name, as text; all types but text in JSON.
using given_options = std::map<std::string, std::string>;

/// Decides which of the options *in_folder* (JSON) tracker *name* gets.
///
/// Anyone who can write to a folder chooses its options, while the credentials
/// are the caller's. So the folder decides only the options that the tracker's
/// `visit` calls harmless: what is shown and how. Programs, servers, paths and
/// profiles come from *given* or have their default; the folder's own value
/// counts only if it is the same. `ec::invalid_argument` for an option of
/// *given* that the tracker does not have, or whose value it cannot take.
expected<folder_options> choose_options(const std::string& name,
                                        const std::string& in_folder,
                                        const given_options& given);

} // namespace troupe::internal
