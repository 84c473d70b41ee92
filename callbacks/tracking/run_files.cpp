#include "troupe/callbacks/tracking/run_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal {

namespace {

/// Opens *name* one path component at a time; sets errno on failure.
unique_fd open_below(const fs::path& run_path, std::string_view name,
                     int flags) {
  unique_fd result{::open(run_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  while (result && !name.empty()) {
    auto slash = name.find('/');
    auto is_last = slash == name.npos;
    std::string part{name.substr(0, slash)};
    name.remove_prefix(is_last ? name.size() : slash + 1);
    result =
      unique_fd{::openat(result.get(), part.c_str(),
                         (is_last ? flags : O_PATH) | O_NOFOLLOW | O_CLOEXEC)};
  }
  return result;
}

bool is_link(const unique_fd& file) {
  struct stat info {};
  return ::fstat(file.get(), &info) == 0 && S_ISLNK(info.st_mode);
}

} // namespace

expected<unique_fd> open_inside(const fs::path& run_path,
                                std::string_view name) {
  auto path = run_path / std::string{name};
  if (!is_path_below(name))
    return failure(ec::invalid_argument, "'" + std::string{name}
                                           + "' leads out of "
                                           + run_path.string());
  auto file = open_below(run_path, name, O_RDONLY | O_NONBLOCK);
  if (!file && (errno == ELOOP || errno == ENOTDIR))
    return failure(ec::invalid_argument,
                   path.string()
                     + " is reached by a link, which is not "
                       "followed");
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0)
    return tl::unexpected{storage_error("open", path, errno)};
  if (!S_ISREG(info.st_mode))
    return failure(ec::storage, path.string() + " is not a regular file");
  return file;
}

expected<bool> is_inside(const fs::path& run_path, std::string_view name) {
  if (!is_path_below(name))
    return false;
  auto file = open_below(run_path, name, O_PATH);
  auto code = errno;
  if (file)
    return !is_link(file);
  if (may_pass(code))
    return tl::unexpected{
      storage_error("look up", run_path / std::string{name}, code)};
  // The sink that is to read it says why it cannot.
  return code == ENOENT || code == EACCES || code == EPERM;
}

expected<std::vector<artifact_file>> files_of(const logged_artifact& x) {
  std::vector<artifact_file> result;
  TROUPE_TRY(auto found, look_up(x.path));
  if (found.is_file()) {
    result.push_back({x.path, x.name});
    return result;
  }
  TROUPE_TRY(auto files, files_below(x.path));
  for (auto& file : files)
    result.push_back(
      {file, (fs::path{x.name} / file.lexically_relative(x.path)).string()});
  return result;
}

sink_failure unreadable_file(const fs::path& file, error reason) {
  using enum sink_failure::kind;
  auto folder = look_up(file.parent_path());
  auto found = look_up(file);
  auto is_gone = folder && folder->exists() && found && !found->exists();
  sink_failure result;
  if (is_gone || reason.code != ec::storage)
    result.what = rejected;
  result.reason = std::move(reason);
  result.suspect = true;
  return result;
}

} // namespace troupe::internal
