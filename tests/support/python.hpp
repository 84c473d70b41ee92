#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/run_command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

/// The interpreter with torch, numpy and safetensors that the bootstrap
/// installs for tests (TROUPE_TEST_PYTHON).
inline std::optional<std::string> test_python() {
  const auto* path = std::getenv("TROUPE_TEST_PYTHON");
  if (path && *path)
    return path;
  return std::nullopt;
}

/// Whether a missing interpreter is a failure instead of a reason to skip.
inline bool python_is_required() {
  const auto* ci = std::getenv("CI");
  return ci && std::string_view{ci} == "true";
}

/// Runs *script* with *arguments*, which must not contain quotes.
inline command_result run_python(const std::string& script,
                                 const std::vector<std::string>& arguments) {
  temporary_folder folder;
  write_bytes(folder / "script.py", script);
  auto command =
    "'" + test_python().value() + "' '" + (folder / "script.py").string() + "'";
  for (const auto& x : arguments)
    command += " '" + x + "'";
  return run_command(command);
}

} // namespace troupe::internal::test

/// Skips a test, or fails it in CI, if there is no interpreter.
#define TROUPE_NEEDS_PYTHON()                                                  \
  do {                                                                         \
    if (!troupe::internal::test::test_python()) {                              \
      if (troupe::internal::test::python_is_required())                        \
        FAIL() << "TROUPE_TEST_PYTHON is not set: run ./dev test";             \
      GTEST_SKIP() << "TROUPE_TEST_PYTHON is not set: run ./dev test";         \
    }                                                                          \
  } while (false)
