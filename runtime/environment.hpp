#pragma once

#include <array>
#include <string>
#include <string_view>

namespace troupe::internal {

/// Every variable of the environment that Troupe reads and whose name is its
/// own. Our build and our tests have more.
inline constexpr std::array<std::string_view, 9> troupe_variables{
  "TROUPE_AGENTS",       "TROUPE_ATTEMPT",       "TROUPE_DRIVER",
  "TROUPE_FAILPOINT",    "TROUPE_FAILPOINT_LOG", "TROUPE_NCCL_LIBRARY",
  "TROUPE_SENDER_GRACE", "TROUPE_SPAWNER",       "TROUPE_TICKET"};

/// A sentence about the first variable of *environment* that is called almost
/// like one of `troupe_variables`, with the nearest of them; empty: there is
/// none. *environment* is as `environ`, ended by nullptr.
std::string misspelled_variable(const char* const* environment);

} // namespace troupe::internal
