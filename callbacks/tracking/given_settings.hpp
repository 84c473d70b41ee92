#pragma once

#include <map>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

// What users give to trackers in options, variables and files: paths, servers
// and credentials. *from* names the option or variable in error messages, which
// show no part of an address or a credential.

/// The value of an environment variable; empty if it is not set.
std::string environment_variable(const char* name);

/// The first of *values* that is not empty: an option, then the variables and
/// files that the tracker's own client reads.
template <class... Ts>
std::string first_of(const Ts&... values) {
  std::string result;
  ((result.empty() ? void(result = values) : void()), ...);
  return result;
}

/// *option*, or the environment variable *name* if that is empty. An option
/// that was saved has lost its user and password: they are those of the
/// variable if that has the same address.
std::string given_address(const std::string& option, const char* name);

/// *name* in HOME or, without HOME, in the home folder of the process's user.
/// Empty if there is neither.
fs::path in_home(const std::string& name);

/// *text* as an absolute path; a leading `~` or `~/` is the user's home folder.
expected<fs::path> given_folder(const std::string& text,
                                const std::string& from);

/// The part of *text* before `://`, in lower case; empty if it is not a scheme.
std::string scheme_of(const std::string& text);

/// *text* with its scheme in lower case and without trailing slashes.
/// `ec::invalid_config`: it is not `http://host` or `https://host`, optionally
/// with a port and a path.
expected<std::string> given_server(const std::string& text,
                                   const std::string& from);

/// `ec::invalid_config` if *text* has control characters: a line break would
/// end its HTTP header.
expected<void> check_credential(const std::string& text,
                                const std::string& from);

/// The values of `[section]` in the INI file *path*, by name in lower case.
/// Lines that begin with `#` or `;` are comments. Empty if there is no such
/// file or section.
std::map<std::string, std::string> ini_section(const fs::path& path,
                                               const std::string& section);

} // namespace troupe::internal
