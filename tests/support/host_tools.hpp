#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <unistd.h>

namespace troupe::internal::test {

/// Whether a test that cannot make hosts of namespaces has to fail instead of
/// being skipped: in CI, if the kernel lets this user make them.
inline bool hosts_are_required() {
  const auto* ci = std::getenv("CI");
  if (!ci || std::string_view{ci} != "true")
    return false;
  auto probe = ::geteuid() == 0 ? "unshare --net true 2>/dev/null"
                                : "unshare --user --map-root-user --net true "
                                  "2>/dev/null";
  return std::system(probe) == 0;
}

} // namespace troupe::internal::test

/// Skips a test, or fails it in CI, because there are no hosts: *reason*.
#define TROUPE_NO_HOSTS(reason)                                                \
  do {                                                                         \
    if (troupe::internal::test::hosts_are_required())                          \
      FAIL() << reason;                                                        \
    GTEST_SKIP() << reason;                                                    \
  } while (false)
