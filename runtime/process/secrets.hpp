#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Environment variables that hold secrets, as names with `*` for any
/// characters, or none. This is the only such list: rank processes do not get
/// these variables unless asked to, and their values are removed from errors
/// and uploaded logs.
inline constexpr auto secret_variables = std::to_array<std::string_view>({
  // Of any program.
  "*APIKEY",
  "*API_KEY",
  "*CONNECTION_STRING",
  "*CREDENTIALS",
  "*PASSPHRASE",
  "*PASSWD",
  "*PASSWORD",
  "*SECRET",
  "*TOKEN",
  "*_ACCESS_KEY_ID",
  "*_KEY",
  "*_PASS",
  "*_PAT",
  "*_PWD",
  "*_SAS",
  // Of services whose secrets have other names.
  "AWS_*TOKEN*",
  "AWS_*SECRET*",
  "AZURE_*KEY*",
  "AZURE_*SECRET*",
  "GOOGLE_*KEY*",
  "MLFLOW_TRACKING_USERNAME",
  "REDISCLI_AUTH",
});

/// Addresses of trackers, which may hold a login. Rank processes do not get
/// them either: only the driver's side talks to trackers. In texts, only the
/// login in them is removed, not the address.
inline constexpr auto tracker_addresses = std::to_array<std::string_view>({
  "COMET_URL_OVERRIDE",
  "MLFLOW_TRACKING_URI",
  "WANDB_BASE_URL",
});

/// Whether *name* fits *pattern*, as those in `secret_variables`.
bool is_variable_of(std::string_view name, std::string_view pattern) noexcept;

/// Whether *name* is in `secret_variables`.
bool is_secret_variable(std::string_view name) noexcept;

/// Whether *value* contains a URL with credentials: `scheme://user:password@`,
/// or `https://token@`. A user alone, as in `ssh://git@host`, is not a secret.
bool holds_login(std::string_view value) noexcept;

/// Adds the secret variables in *environment*, which ranks get, to
/// `secret_values()`, until this process ends.
void note_secrets(const std::map<std::string, std::string>& environment);

/// The values of this process's secret variables, the passwords in URLs of its
/// other variables, and the values from `note_secrets`; of a text of several
/// lines also the lines. The longest first: one may be a part of another.
std::vector<std::string> secret_values();

// -- removing them from texts (redactor.cpp) ----------------------------------

/// Removes secrets from texts: `***` replaces the user info of URLs, the value
/// after `Authorization:`, `Bearer` and `Basic`, for values of keys, tokens,
/// signatures and passwords in queries and forms, and for `secret_values()` as
/// they were when it was made (from four characters on; shorter ones would hit
/// any word; below eight not as a part of a word or path). Runs in linear
/// time.
class redactor {
public:
  redactor();

  std::string operator()(std::string_view text) const;

  /// As above, for a text whose end was cut off: also removes a possible
  /// beginning of a secret there, from four characters on.
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

/// Each line of *text* without secrets, for logs: no rule extends into the next
/// line.
std::string redacted_lines(std::string_view text);

/// *text* without the user and password of an address, `scheme://user@host`;
/// any other text as it is.
std::string without_user(std::string_view text);

/// The scheme, host, port and path of *url*: no user info, no query.
std::string shown_url(std::string_view url);

/// Fills *bytes*, at most 256, with the system's random numbers, good enough
/// for a secret.
expected<void> fill_random(std::span<std::byte> bytes);

/// As many random *bytes* as hexadecimal digits.
expected<std::string> random_hex(std::size_t bytes);

} // namespace troupe::internal
