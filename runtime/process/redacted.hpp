#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Takes secrets out of texts: `***` stands for the user info of URLs, for what
/// follows `Authorization:`, `Bearer` and `Basic`, for values of keys, tokens,
/// signatures and passwords in queries and forms, and for `secret_values()` as
/// they were when it was made (from four characters on; shorter ones would hit
/// any word; below eight not as a part of a word or path). A text takes time in
/// proportion to its length.
class redactor {
public:
  redactor();

  std::string operator()(std::string_view text) const;

  /// As above, of a text whose end was cut off: without what may be the begin
  /// of a secret there, from four characters on.
  std::string of_cut(std::string_view text) const;

  /// Also without *secret*, which came from an option or a file.
  std::string without(std::string_view text, std::string_view secret) const;

private:
  std::vector<std::string> secrets_;
};

/// *text* without secrets, for errors.
std::string redacted(std::string_view text);

/// As above, without *secret* too.
std::string redacted(std::string_view text, std::string_view secret);

/// Each line of *text* without secrets, for logs: no rule reaches into the line
/// after.
std::string redacted_lines(std::string_view text);

/// The scheme, host, port and path of *url*: no user info, no query.
std::string shown_url(std::string_view url);

} // namespace troupe
