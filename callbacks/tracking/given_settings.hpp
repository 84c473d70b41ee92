#pragma once

#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

// What users give to trackers in options and variables: where something lies,
// where a server is, and with what they log in. *from* names the option or the
// variable in sentences, which show no part of an address or a credential.

/// Of an environment variable; empty if it is not set.
std::string variable(const char* name);

/// The first of *values* that is not empty: an option, then the variables and
/// files that a tracker's own client reads.
template <class... Ts>
std::string first_of(const Ts&... values) {
  std::string result;
  ((result.empty() ? void(result = values) : void()), ...);
  return result;
}

/// *name* in HOME, else in the home of the process' user. Empty if there is
/// none: no file has that path.
fs::path in_home(const std::string& name);

/// *text* as absolute path; `~` and `~/` at its begin mean the user's home.
expected<fs::path> given_folder(const std::string& text,
                                const std::string& from);

/// What *text* has before `://`, in lower case; empty if that is no scheme.
std::string scheme_of(const std::string& text);

/// *text* with its scheme in lower case and without slashes at its end.
/// `ec::invalid_config`: it is not `http://host` or `https://host`, perhaps
/// with a port and a path.
expected<std::string> given_server(const std::string& text,
                                   const std::string& from);

/// `ec::invalid_config` for one with control characters: a line break would end
/// the header that it is sent in.
expected<void> check_credential(const std::string& text,
                                const std::string& from);

} // namespace troupe
