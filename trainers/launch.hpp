#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/launch_environment.hpp"

namespace troupe::internal {

/// What the arguments of a program say about hosts. All others are the
/// program's own.
struct launch_arguments {
  std::string hosts;       ///< Of `--hosts LIST` or `--hosts=LIST`.
  bool node_agent = false; ///< `--node-agent`
  /// Of `--make-tickets FOLDER` or `--make-tickets=FOLDER`.
  std::string tickets;

  /// Of `--node-agent=NUMBER`, as the driver calls this launch; 0: the agent
  /// was started by someone else.
  std::uint64_t launch = 0;
};

/// Reads the arguments up to a `--`. `ec::invalid_config` if one of these
/// options lacks its value or has an invalid one, or if `--hosts` or
/// `--make-tickets` is given twice.
expected<launch_arguments> read_launch_arguments(int argc,
                                                 const char* const* argv);

/// Whether stdout was open at the first call. `init` asks before /dev/null is
/// opened in the place of what is closed.
bool had_stdout() noexcept;

/// Finds out what started this process, for `found_launch`. An agent serves its
/// driver now, and an extra task ends: then it does not return. Otherwise says
/// in one line what was found, unless it is this host alone.
void find_launch(int argc, const char* const* argv);

/// What `find_launch` found, or why it could not; before it, this host alone.
/// *hosts* of the config count unless the command line names others.
expected<launch_environment> found_launch(const std::string& hosts);

/// Whether *hosts* of the config or the command line name any.
bool has_given_hosts(const std::string& hosts);

} // namespace troupe::internal
