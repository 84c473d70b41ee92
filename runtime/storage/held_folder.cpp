#include "troupe/runtime/storage/held_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/own_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

template <class Call>
auto without_interrupts(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR)
    result = call();
  return result;
}

struct closer {
  void operator()(DIR* x) const noexcept { ::closedir(x); }
};

} // namespace

expected<held_folder> held_folder::open_at(int above, const char* name,
                                           const fs::path& path) {
  auto fd = without_interrupts([&] {
    return ::openat(above, name,
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  });
  if (fd >= 0)
    return held_folder{unique_fd{fd}, path};
  auto code = errno;
  struct stat found {};
  if (code == ENOTDIR // what Linux says of a link then
      && ::fstatat(above, name, &found, AT_SYMLINK_NOFOLLOW) == 0
      && S_ISLNK(found.st_mode))
    return failure(ec::storage, "cannot use folder " + path.string()
                                  + ": it is a symbolic link, and what Troupe "
                                    "writes in a run's folder never is");
  return tl::unexpected{storage_error("use folder", path, code)};
}

expected<held_folder> held_folder::open(const fs::path& path) {
  return open_at(AT_FDCWD, path.c_str(), path);
}

expected<held_folder> held_folder::folder(const std::string& name) const {
  auto path = path_ / name;
  if (::mkdirat(folder_.get(), name.c_str(), 0700) == 0) {
    if (auto ok = sync_file(folder_, path_); !ok)
      return tl::unexpected{ok.error()};
  } else if (errno != EEXIST) {
    return tl::unexpected{storage_error("make folder", path, errno)};
  }
  return open_at(folder_.get(), name.c_str(), path);
}

expected<unique_fd> held_folder::open_file(const std::string& name, int flags,
                                           std::string_view action) const {
  return open_own_file(folder_.get(), name.c_str(), flags, ec::storage,
                       "cannot " + std::string{action} + ' '
                         + (path_ / name).string());
}

expected<std::string> held_folder::read_file(const std::string& name,
                                             std::size_t limit) const {
  return open_file(name, O_RDONLY, "open").and_then([&](const unique_fd& file) {
    return read_open_file(file, path_ / name, limit);
  });
}

expected<void> held_folder::replace_file(const std::string& name,
                                         std::string_view bytes,
                                         struct stat* made) const {
  // One driver at a time writes here, so that one temporary name will do.
  auto temporary = name + ".new";
  ::unlinkat(folder_.get(), temporary.c_str(), 0); // what a crash left
  auto written = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL, "create")
                   .and_then([&](const unique_fd& file) {
                     if (made)
                       ::fstat(file.get(), made);
                     return write_durably(file, path_ / temporary, bytes);
                   });
  failpoint("replace.written");
  if (written
      && ::renameat(folder_.get(), temporary.c_str(), folder_.get(),
                    name.c_str())
           != 0)
    written = tl::unexpected{storage_error("replace", path_ / name, errno)};
  if (!written) {
    ::unlinkat(folder_.get(), temporary.c_str(), 0);
    return written;
  }
  failpoint("replace.renamed");
  return sync_file(folder_, path_);
}

expected<std::vector<std::string>> held_folder::names() const {
  // A descriptor of its own: reading a folder moves its offset.
  auto copy = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0)
    return tl::unexpected{storage_error("list", path_, errno)};
  auto code = failpoint("storage.list");
  std::unique_ptr<DIR, closer> entries{code == 0 ? ::fdopendir(copy) : nullptr};
  if (!entries) { // no memory
    code = code == 0 ? errno : code;
    ::close(copy);
    return tl::unexpected{storage_error("list", path_, code)};
  }
  std::vector<std::string> result;
  errno = 0;
  while (auto entry = ::readdir(entries.get()))
    if (std::string name = entry->d_name; name != "." && name != "..")
      result.push_back(std::move(name));
  if (errno != 0)
    return tl::unexpected{storage_error("list", path_, errno)};
  std::ranges::sort(result);
  return result;
}

expected<void> held_folder::remove_file(const std::string& name) const {
  if (::unlinkat(folder_.get(), name.c_str(), 0) != 0 && errno != ENOENT)
    return tl::unexpected{storage_error("remove", path_ / name, errno)};
  return {};
}

int held_folder::look_up(const std::string& name,
                         struct stat& found) const noexcept {
  if (auto code = failpoint("storage.look_up"))
    return code;
  return ::fstatat(folder_.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW)
             == 0
           ? 0
           : errno;
}

expected<bool> held_folder::is_at_its_path() const {
  struct stat ours {
  }, found{};
  if (::fstat(folder_.get(), &ours) != 0)
    return tl::unexpected{storage_error("look up", path_, errno)};
  if (::stat(path_.c_str(), &found) == 0)
    return is_same_file(ours, found);
  if (errno == ENOENT || errno == ENOTDIR)
    return false;
  return tl::unexpected{storage_error("look up", path_, errno)};
}

} // namespace troupe
