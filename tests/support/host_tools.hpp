#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/support/run_command.hpp"

namespace troupe::internal::test {

/// The folder of the scripts that make hosts of namespaces: `tests/hosts`, or
/// that of the variable.
inline std::string host_tools() {
  auto* given = std::getenv("TROUPE_HOST_TOOLS");
  return given ? given : TROUPE_HOST_TOOLS;
}

/// Why a test has no hosts, and whether it fails for that.
struct no_hosts {
  std::string reason; ///< Empty: there can be hosts.
  bool fails = false;
};

/// A test without hosts fails in CI, where they are missed by mistake, unless
/// the kernel forbids them.
inline no_hosts look_for_hosts() {
  auto check = run_command(host_tools() + "/hosts.sh check");
  if (check.exit_code == 0)
    return {};
  auto* ci = std::getenv("CI");
  return {"no hosts of namespaces: " + check.output,
          ci && std::string_view{ci} == "true" && check.exit_code != 77};
}

} // namespace troupe::internal::test

/// Skips a test, or fails it, where hosts of namespaces cannot be made.
#define TROUPE_NEEDS_HOSTS()                                                   \
  if (auto troupe_no_hosts = troupe::internal::test::look_for_hosts();         \
      troupe_no_hosts.fails)                                                   \
    FAIL() << troupe_no_hosts.reason;                                          \
  else if (!troupe_no_hosts.reason.empty())                                    \
  GTEST_SKIP() << troupe_no_hosts.reason
