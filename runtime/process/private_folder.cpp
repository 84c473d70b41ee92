#include "troupe/runtime/process/private_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include <boost/filesystem.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "troupe/runtime/process/process_identity.hpp"
#include "troupe/runtime/process/system_failure.hpp"

namespace troupe {
namespace {

namespace bfs = boost::filesystem;

// troupe-<process namespace>-<pid>-<start time>-<six random letters>
constexpr const char* prefix = "troupe-";

// sun_path takes 107 bytes; 20 are for the name of a socket in the folder.
constexpr std::size_t max_path = 107 - 20;

/// Containers may share /tmp, but not their process ids.
std::string process_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? std::to_string(info.st_ino)
                                                 : "0";
}

std::vector<std::string> parents() {
  std::vector<std::string> result;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR");
      runtime && *runtime == '/')
    result.emplace_back(runtime);
  result.emplace_back("/tmp");
  return result;
}

/// Whether *name* is that of a folder whose process is gone.
bool is_stale(const std::string& name) {
  auto mine = prefix + process_namespace() + "-";
  if (!name.starts_with(mine))
    return false;
  auto pid_end = name.find('-', mine.size());
  auto start_end = name.find('-', pid_end + 1);
  if (pid_end == std::string::npos || start_end == std::string::npos)
    return false;
  auto pid = name.substr(mine.size(), pid_end - mine.size());
  if (pid.empty() || pid.find_first_not_of("0123456789") != std::string::npos)
    return false;
  return start_time_of(pid)
         != name.substr(pid_end + 1, start_end - pid_end - 1);
}

bool is_own_folder(const bfs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)
         && info.st_uid == ::geteuid();
}

} // namespace

expected<private_folder> private_folder::make() {
  auto pid = std::to_string(::getpid());
  auto name = prefix + process_namespace() + "-" + pid + "-"
              + start_time_of(pid).value_or("0") + "-XXXXXX";
  int why = ENAMETOOLONG;
  for (const auto& parent : parents()) {
    auto path = parent + "/" + name;
    if (path.size() > max_path)
      continue;
    if (::mkdtemp(path.data())) // Mode 0700.
      return private_folder{path};
    why = errno;
  }
  return system_failure(ec::storage,
                        "cannot make a private folder for sockets "
                        "in $XDG_RUNTIME_DIR or /tmp",
                        why);
}

int private_folder::remove_stale() {
  int removed = 0;
  for (const auto& parent : parents()) {
    boost::system::error_code failed;
    for (bfs::directory_iterator at{parent, failed}, end; !failed && at != end;
         at.increment(failed)) {
      boost::system::error_code ignored; // Another process may be faster.
      if (is_stale(at->path().filename().string()) && is_own_folder(at->path())
          && bfs::remove_all(at->path(), ignored) > 0 && !ignored)
        ++removed;
    }
  }
  return removed;
}

private_folder::private_folder(std::string path)
  : path_{std::move(path)}, owner_{::getpid()} {}

private_folder::private_folder(private_folder&& other) noexcept
  : path_{std::exchange(other.path_, {})}, owner_{other.owner_} {}

private_folder& private_folder::operator=(private_folder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(owner_, other.owner_);
  return *this;
}

private_folder::~private_folder() {
  if (path_.empty() || owner_ != ::getpid())
    return;
  boost::system::error_code ignored; // The next start removes what is left.
  bfs::remove_all(path_, ignored);
}

} // namespace troupe
