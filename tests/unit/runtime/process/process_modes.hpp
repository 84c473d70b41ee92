#pragma once

#include <string>
#include <sys/types.h>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

/// The variable that makes this program do something else than its tests.
inline constexpr const char* mode_variable = "TROUPE_PROCESS_TEST_MODE";

/// Set, it makes the program end with code 5 instead of becoming a spawner.
inline constexpr const char* no_spawner_variable =
  "TROUPE_PROCESS_TEST_NO_SPAWNER";

/// Part of this program's environment, in its constant memory.
inline constexpr const char* constant_variable =
  "TROUPE_PROCESS_TEST_CONSTANT=a secret";

/// Names, in the mode `spare_relatives`, what is to be killed.
inline constexpr const char* kin_variable = "TROUPE_PROCESS_TEST_KIN";

/// What has to happen in *mode* before the spawner is made.
void prepare_mode(const std::string& mode);

/// Runs *mode*; the exit code of the program.
int run_mode(const std::string& mode);

/// This program, started again in a mode.
struct program {
  pid_t pid = -1;
  unique_fd output; ///< Its stdout.

  /// Waits for its end; the status as waitpid gives it.
  int wait() const;
};

program start_program(const std::string& mode);

} // namespace troupe::internal::test
