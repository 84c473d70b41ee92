#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace troupe::internal::test {

/// The kernel shows the environment of *pid* a moment after it started the
/// program.
inline void wait_for_environment(pid_t pid) {
  auto path = "/proc/" + std::to_string(pid) + "/environ";
  while (std::ifstream{path}.peek() == std::ifstream::traits_type::eof())
    std::this_thread::yield();
}

/// The program `sleep` in a session of its own, with the variables of
/// *environment*, which /proc shows.
inline pid_t start_sleep(char* const* environment) {
  std::string name = "sleep", time = "600";
  char* arguments[] = {name.data(), time.data(), nullptr};
  posix_spawnattr_t with;
  posix_spawnattr_init(&with);
  posix_spawnattr_setflags(&with, POSIX_SPAWN_SETSID);
  pid_t result = -1;
  if (::posix_spawnp(&result, "sleep", nullptr, &with, arguments, environment)
      != 0)
    std::abort();
  posix_spawnattr_destroy(&with);
  wait_for_environment(result);
  return result;
}

/// The same with *variables*, "<name>=<value>", alone.
inline pid_t start_sleep(std::vector<std::string> variables) {
  std::vector<char*> environment;
  for (auto& x : variables)
    environment.push_back(x.data());
  environment.push_back(nullptr);
  return start_sleep(environment.data());
}

} // namespace troupe::internal::test
