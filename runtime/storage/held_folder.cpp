#include "troupe/runtime/storage/held_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

struct closer {
  void operator()(DIR* x) const noexcept { ::closedir(x); }
};

// Adds the names in *folder* to *result*; 0, or what `errno` says.
int list(int folder, std::vector<std::string>& result) {
  // A descriptor of its own: reading a folder moves its offset.
  auto copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0)
    return errno;
  std::unique_ptr<DIR, closer> entries{::fdopendir(copy)};
  if (!entries) { // no memory
    auto code = errno;
    ::close(copy);
    return code;
  }
  errno = 0;
  while (auto entry = ::readdir(entries.get())) {
    if (std::string name = entry->d_name; name != "." && name != "..")
      result.push_back(std::move(name));
    errno = 0;
  }
  return errno;
}

// Removes *name* in *above* and all below it, by descriptors: a concurrent
// rename cannot redirect it. 0, or what `errno` says.
int remove_all(int above, const char* name) {
  if (::unlinkat(above, name, 0) == 0 || errno == ENOENT)
    return 0;
  auto code = errno;
  if (code != EISDIR && code != EPERM) // what systems say of a folder
    return code;
  unique_fd folder{
    ::openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  if (!folder)
    return errno == ENOTDIR ? code : errno;
  std::vector<std::string> names;
  code = list(folder.get(), names);
  for (auto& x : names)
    if (code == 0)
      code = remove_all(folder.get(), x.c_str());
  if (code != 0)
    return code;
  return ::unlinkat(above, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0
                                                                       : errno;
}

} // namespace

error gone_error(std::string_view what, const fs::path& path,
                 std::string_view how) {
  return {ec::storage,
          concat(what, ' ', path.string(), " is gone: it was ", how)};
}

expected<held_folder> held_folder::open_at(int above, const char* name,
                                           const fs::path& path) {
  auto fd = uninterrupted([&] {
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
                                  + ": it is a symbolic link, which Troupe "
                                    "never creates in a run's folder");
  return tl::unexpected{storage_error("use folder", path, code)};
}

expected<held_folder> held_folder::open(const fs::path& path,
                                        std::uint64_t inode) {
  return open_at(AT_FDCWD, path.c_str(), path)
    .and_then([&](held_folder x) -> expected<held_folder> {
      if (inode == 0 || inode == x.inode())
        return x;
      return tl::unexpected{
        gone_error("the folder", path,
                   "renamed or replaced, and another one has its name")};
    });
}

expected<held_folder> held_folder::follow(const fs::path& path) {
  return open_at(AT_FDCWD, (path / ".").c_str(), path);
}

expected<held_folder> held_folder::duplicate() const {
  return internal::duplicate(folder_.get()).map([this](unique_fd x) {
    return held_folder{std::move(x), path_};
  });
}

expected<held_folder> held_folder::folder(const std::string& name) const {
  auto path = path_ / name;
  if (::mkdirat(folder_.get(), name.c_str(), 0700) == 0) {
    TROUPE_TRY_VOID(sync());
  } else if (errno != EEXIST) {
    return tl::unexpected{storage_error("make folder", path, errno)};
  }
  return open_at(folder_.get(), name.c_str(), path);
}

expected<held_folder> held_folder::make_folder(const std::string& name) const {
  auto path = path_ / name;
  if (::mkdirat(folder_.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
    return tl::unexpected{storage_error("make folder", path, errno)};
  return open_at(folder_.get(), name.c_str(), path);
}

expected<void> held_folder::make_folders(const fs::path& path) const {
  fs::path made;
  for (auto& name : path) {
    made /= name;
    if (::mkdirat(folder_.get(), made.c_str(), 0700) != 0 && errno != EEXIST)
      return tl::unexpected{storage_error("make folder", path_ / made, errno)};
  }
  return {};
}

expected<held_folder> held_folder::existing(const fs::path& path) const {
  if (path.empty())
    return duplicate();
  held_folder result;
  auto above = folder_.get();
  auto whole = path_;
  for (auto& name : path) {
    whole /= name;
    TROUPE_TRY(auto next, open_at(above, name.c_str(), whole));
    result = std::move(next); // Closes the one above.
    above = result.folder_.get();
  }
  return result;
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

expected<void> held_folder::write_new_file(const std::string& name,
                                           std::string_view bytes) const {
  return open_file(name, O_WRONLY | O_CREAT | O_EXCL, "create")
    .and_then([&](const unique_fd& file) {
      return write_durably(file, path_ / name, bytes);
    });
}

expected<void> held_folder::replace_file(const std::string& name,
                                         std::string_view bytes,
                                         struct stat* made) const {
  return replace_file_at(folder_, path_ / name, bytes,
                         after_power_cut::new_file, made);
}

expected<std::vector<std::string>> held_folder::names() const {
  std::vector<std::string> result;
  auto code = failpoint("storage.list");
  if (code == 0)
    code = list(folder_.get(), result);
  if (code != 0)
    return tl::unexpected{storage_error("list", path_, code)};
  std::ranges::sort(result);
  return result;
}

expected<void> held_folder::remove_file(const std::string& name) const {
  if (::unlinkat(folder_.get(), name.c_str(), 0) != 0 && errno != ENOENT)
    return tl::unexpected{storage_error("remove", path_ / name, errno)};
  return {};
}

expected<void> held_folder::remove_tree(const std::string& name) const {
  if (auto code = remove_all(folder_.get(), name.c_str()))
    return tl::unexpected{storage_error("remove", path_ / name, code)};
  return {};
}

expected<void> held_folder::rename_new(const std::string& from,
                                       const held_folder& to,
                                       const std::string& name) const {
  return rename_new_at(folder_.get(), path_ / from, to.folder_.get(),
                       to.path_ / name);
}

expected<void> held_folder::sync() const {
  return sync_file(folder_, path_);
}

expected<file_status> held_folder::look_up(const fs::path& name) const {
  return look_up_at(folder_.get(), name, path_ / name, 0);
}

expected<file_status> held_folder::look_up_link(const fs::path& name) const {
  return look_up_at(folder_.get(), name, path_ / name, AT_SYMLINK_NOFOLLOW);
}

std::uint64_t held_folder::inode() const noexcept {
  struct stat found {};
  return ::fstat(folder_.get(), &found) == 0 ? found.st_ino : 0;
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
  return is_at(folder_, path_);
}

expected<held_entry> held_entry::open(const held_folder& above,
                                      std::string name) {
  unique_fd entry{::openat(above.descriptor().get(), name.c_str(),
                           O_PATH | O_NOFOLLOW | O_CLOEXEC)};
  if (!entry)
    return tl::unexpected{storage_error("open", above.path() / name, errno)};
  return held_entry{above, std::move(entry), std::move(name)};
}

expected<void> held_entry::rename(const std::string& to) const {
  TROUPE_TRY_VOID(above_.rename_new(name_, above_, to));
  struct stat ours {};
  struct stat found {};
  if (::fstat(entry_.get(), &ours) == 0
      && ::fstatat(above_.descriptor().get(), to.c_str(), &found,
                   AT_SYMLINK_NOFOLLOW)
           == 0
      && is_same_file(ours, found))
    return {};
  (void) above_.rename_new(to, above_, name_);
  return failure(ec::storage,
                 (above_.path() / name_).string()
                   + " was just replaced: what is there now is left alone");
}

} // namespace troupe::internal
