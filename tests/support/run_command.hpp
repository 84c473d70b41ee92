#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace troupe::internal::test {

struct command_result {
  int exit_code = -1; ///< -1 also after a signal.
  std::string output; ///< Of both streams.
};

/// Runs *command* in a shell and waits for its end.
inline command_result run_command(const std::string& command) {
  command_result result;
  auto* pipe = ::popen((command + " 2>&1").c_str(), "re");
  if (!pipe)
    return result;
  std::array<char, 4096> buffer;
  while (auto n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), n);
  auto status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

} // namespace troupe::internal::test
