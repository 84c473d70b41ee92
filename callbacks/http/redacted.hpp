#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// *text* without secrets, for errors and logs: `***` stands for the user info
/// of URLs, for what follows `Authorization:`, `Bearer` and `Basic`, for values
/// of keys, tokens, signatures and passwords in queries and forms, and for the
/// values of the trackers' secret environment variables (from four characters
/// on; shorter ones would hit any word).
std::string redacted(std::string_view text);

/// As above, without *secret*, which came from an option or a file, too.
std::string redacted(std::string_view text, std::string_view secret);

/// The scheme, host, port and path of *url*: no user info, no query.
std::string shown_url(std::string_view url);

} // namespace troupe
