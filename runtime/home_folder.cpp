#include "troupe/runtime/home_folder.hpp"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace troupe::internal {

std::optional<fs::path> home_folder() {
  if (auto home = std::getenv("HOME"))
    return fs::path{home};
  if (auto user = ::getpwuid(::getuid()); user && user->pw_dir)
    return fs::path{user->pw_dir};
  return std::nullopt;
}

} // namespace troupe::internal
