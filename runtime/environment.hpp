#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// Every variable of the environment that Troupe reads and whose name is its
/// own. Our build and our tests have more.
inline constexpr std::array<std::string_view, 10> troupe_variables{
  "TROUPE_AGENTS",       "TROUPE_ATTEMPT",       "TROUPE_DRIVER",
  "TROUPE_FAILPOINT",    "TROUPE_FAILPOINT_LOG", "TROUPE_NCCL_LIBRARY",
  "TROUPE_SENDER_GRACE", "TROUPE_SPAWNER",       "TROUPE_STORAGE",
  "TROUPE_TICKET"};

/// A sentence about the first variable of *environment* that is called almost
/// like one of `troupe_variables`, with the nearest of them; empty: there is
/// none. *environment* is as `environ`, ended by nullptr.
std::string misspelled_variable(const char* const* environment);

/// HOME or, if it is unset as under cron, or empty, the user's entry; nothing
/// without either.
std::optional<fs::path> home_folder();

/// *text* with the home folder in place of a leading `~` or `~/`.
/// `ec::invalid_config`, which begins with *from*: there is no home folder, or
/// *text* begins with `~` and the name of a user.
expected<fs::path> expanded(const std::string& text, const std::string& from);

} // namespace troupe::internal
