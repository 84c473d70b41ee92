#include "troupe/runtime/storage/durable_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <system_error>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/storage/file_copy.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

tl::unexpected<error> storage_failure(std::string_view action,
                                      const fs::path& path, int code) {
  return tl::unexpected{storage_error(action, path, code)};
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path{"."};
}

// In an open folder a path is its last name.
fs::path name_in(int folder, const fs::path& path) {
  return folder == AT_FDCWD ? path : path.filename();
}

fs::file_type type_of(mode_t mode) noexcept {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return fs::regular_file;
    case S_IFDIR:
      return fs::directory_file;
    case S_IFLNK:
      return fs::symlink_file;
    default:
      return fs::type_unknown; // a device, a pipe, a socket
  }
}

// Writes *file*, which is *temporary* in *folder*, and renames it to *path*. By
// name in the open folder: if that is renamed meanwhile, nothing stays behind.
expected<void> put_in_place(const unique_fd& folder, const unique_fd& file,
                            const fs::path& temporary, const fs::path& path,
                            std::string_view bytes, after_power_cut left) {
  auto may_stay = left == after_power_cut::new_or_old_file
                  && ::faccessat(folder.get(), path.filename().c_str(), F_OK,
                                 AT_SYMLINK_NOFOLLOW)
                       == 0;
  auto name = temporary.filename();
  auto written = write_durably(file, temporary, bytes);
  failpoint("replace.written");
  if (written
      && ::renameat(folder.get(), name.c_str(), folder.get(),
                    path.filename().c_str())
           != 0)
    written = storage_failure("replace", path, errno);
  if (!written) {
    ::unlinkat(folder.get(), name.c_str(), 0);
    return written;
  }
  failpoint("replace.renamed");
  return may_stay ? expected<void>{} : sync_file(folder, folder_of(path));
}

} // namespace

bool may_pass(int code) noexcept {
  switch (code) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EACCES:
    case EPERM:
    case EROFS:
      return false;
    default:
      return true;
  }
}

error storage_error(std::string_view action, const fs::path& path, int code) {
  return {ec::storage, concat("cannot ", action, ' ', path.string(), ": ",
                              std::generic_category().message(code))};
}

expected<file_status> look_up_at(int above, const fs::path& name,
                                 const fs::path& path, int flags) {
  if (auto code = failpoint("storage.look_up"))
    return storage_failure("look up", path, code);
  struct stat info {};
  if (::fstatat(above, name.c_str(), &info, flags) == 0)
    return file_status{type_of(info.st_mode),
                       static_cast<std::uint64_t>(info.st_size),
                       static_cast<std::uint64_t>(info.st_nlink)};
  if (errno == ENOENT || errno == ENOTDIR)
    return file_status{};
  return storage_failure("look up", path, errno);
}

expected<file_status> look_up(const fs::path& path) {
  return look_up_at(AT_FDCWD, path, path, 0);
}

expected<file_status> look_up_link(const fs::path& path) {
  return look_up_at(AT_FDCWD, path, path, AT_SYMLINK_NOFOLLOW);
}

expected<bool> is_at(const unique_fd& file, const fs::path& path) {
  struct stat ours {};
  struct stat found {};
  if (::fstat(file.get(), &ours) == 0 && ::stat(path.c_str(), &found) == 0)
    return is_same_file(ours, found);
  if (errno == ENOENT || errno == ENOTDIR)
    return false;
  return storage_failure("look up", path, errno);
}

expected<fs::path> absolute_path(const fs::path& path) {
  if (path.is_absolute())
    return path.lexically_normal();
  boost::system::error_code code;
  auto base = fs::current_path(code);
  if (code)
    return failure(ec::storage, "'" + path.string()
                                  + "' is relative and the current folder "
                                    "cannot be found: "
                                  + code.message());
  return (base / path).lexically_normal();
}

expected<std::vector<fs::path>> files_below(const fs::path& path) {
  std::vector<fs::path> result;
  boost::system::error_code code;
  auto i = fs::recursive_directory_iterator{path, code};
  for (; !code && i != fs::recursive_directory_iterator{}; i.increment(code)) {
    TROUPE_TRY(auto found, look_up(i->path()));
    if (found.is_file() && !is_unfinished_copy(i->path()))
      result.push_back(i->path());
  }
  if (code)
    return storage_failure("list", path, code.value());
  std::ranges::sort(result);
  return result;
}

expected<unique_fd> open_file(const fs::path& path, int flags,
                              std::string_view action) {
  if ((flags & (O_ACCMODE | O_CREAT)) != O_RDONLY)
    return open_own_file(AT_FDCWD, path.c_str(), flags, ec::storage,
                         concat("cannot ", action, ' ', path.string()));
  return open_to_read_at(AT_FDCWD, path, path, flags, action);
}

expected<unique_fd> open_to_read_at(int above, const fs::path& name,
                                    const fs::path& path, int flags,
                                    std::string_view action) {
  // A pipe in a file's place must not block.
  auto fd = uninterrupted([&] {
    return ::openat(above, name.c_str(), flags | O_NONBLOCK | O_CLOEXEC);
  });
  unique_fd file{fd};
  struct stat found {};
  if (!file || ::fstat(fd, &found) != 0)
    return storage_failure(action, path, errno);
  if (S_ISFIFO(found.st_mode))
    return failure(ec::storage, concat("cannot ", action, ' ', path.string(),
                                       ": it is a pipe"));
  ::fcntl(fd, F_SETFL, 0); // A child may get it as standard input.
  return file;
}

expected<void> sync_file(const unique_fd& file, const fs::path& path) {
  if (auto code = failpoint("storage.sync_file"))
    return storage_failure("make durable", path, code);
  if (uninterrupted([&] { return ::fsync(file.get()); }) != 0)
    return storage_failure("make durable", path, errno);
  return {};
}

expected<void> sync_folder(const fs::path& path) {
  return open_file(path, O_RDONLY | O_DIRECTORY, "open folder")
    .and_then([&](const unique_fd& folder) { return sync_file(folder, path); });
}

expected<void> write_durably(const unique_fd& file, const fs::path& path,
                             std::string_view bytes) {
  while (!bytes.empty()) {
    if (auto code = failpoint("storage.write"))
      return storage_failure("write", path, code);
    auto count = uninterrupted(
      [&] { return ::write(file.get(), bytes.data(), bytes.size()); });
    if (count < 0)
      return storage_failure("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return sync_file(file, path);
}

expected<void> overwrite(const unique_fd& file, const fs::path& path,
                         std::string_view bytes) {
  for (off_t at = 0; !bytes.empty();) {
    auto count = uninterrupted(
      [&] { return ::pwrite(file.get(), bytes.data(), bytes.size(), at); });
    if (count < 0)
      return storage_failure("write", path, errno);
    at += static_cast<off_t>(count);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

expected<void> write_new_file(const fs::path& path, std::string_view bytes) {
  return open_file(path, O_WRONLY | O_CREAT | O_EXCL, "create")
    .and_then(
      [&](const unique_fd& file) { return write_durably(file, path, bytes); });
}

expected<void> replace_file(const fs::path& path, std::string_view bytes,
                            after_power_cut left) {
  TROUPE_TRY(auto folder,
             open_file(folder_of(path), O_RDONLY | O_DIRECTORY, "open folder"));
  return replace_file_at(folder, path, bytes, left);
}

expected<void> replace_file_at(const unique_fd& folder, const fs::path& path,
                               std::string_view bytes, after_power_cut left,
                               struct stat* made) {
  auto temporary = path;
  temporary += ".new";
  auto name = temporary.filename();
  ::unlinkat(folder.get(), name.c_str(), 0); // left by a crash
  return open_own_file(folder.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL,
                       ec::storage, "cannot create " + temporary.string())
    .and_then([&](const unique_fd& file) {
      if (made)
        ::fstat(file.get(), made);
      return put_in_place(folder, file, temporary, path, bytes, left);
    });
}

expected<void> replace_shared_file(const unique_fd& folder,
                                   const fs::path& path,
                                   std::string_view bytes) {
  auto made = make_temporary(folder.get(), path, 0600);
  if (!made.file)
    return storage_failure("create", made.path, made.code);
  return put_in_place(folder, made.file, made.path, path, bytes,
                      after_power_cut::new_file);
}

temporary_file make_temporary(int folder, const fs::path& path, mode_t mode) {
  std::random_device random;
  for (auto tries = 100;; --tries) {
    temporary_file made{
      concat(path.string(), '.', 100'000 + random() % 900'000), {}};
    auto name = name_in(folder, made.path);
    made.file.reset(::openat(folder, name.c_str(),
                             O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    made.code = made.file ? 0 : errno;
    if (made.code != EEXIST || tries == 0)
      return made;
  }
}

expected<void> check_size(const fs::path& path, std::string_view bytes,
                          std::size_t limit) {
  if (bytes.size() <= limit)
    return {};
  return failure(ec::storage,
                 concat(path.string(), " would have ", bytes.size(),
                        " bytes, the limit is ", limit));
}

expected<std::string> read_file(const fs::path& path, std::size_t limit) {
  return open_file(path, O_RDONLY, "open").and_then([&](const unique_fd& file) {
    return read_open_file(file, path, limit);
  });
}

expected<std::string> read_open_file(const unique_fd& file,
                                     const fs::path& path, std::size_t limit) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return storage_failure("read", path, errno);
  auto size = static_cast<std::size_t>(info.st_size);
  if (size > limit)
    return failure(ec::corrupt,
                   concat(path.string(), " has ", size,
                          " bytes, more than the ", limit, " it may have"));
  return read_range(file, path, 0, size);
}

expected<std::string> read_range(const unique_fd& file, const fs::path& path,
                                 std::uint64_t begin, std::size_t size) {
  std::string result(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    auto count = uninterrupted([&] {
      return ::pread(file.get(), result.data() + done, size - done,
                     static_cast<off_t>(begin + done));
    });
    if (count < 0)
      return storage_failure("read", path, errno);
    if (count == 0)
      break;
    done += static_cast<std::size_t>(count);
  }
  result.resize(done);
  return result;
}

expected<void> make_folders(const fs::path& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0)
    return sync_folder(folder_of(path));
  auto code = errno;
  if (code == ENOENT && path.has_parent_path())
    return make_folders(path.parent_path(), mode)
      .and_then([&]() -> expected<void> {
        if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
          return storage_failure("make folder", path, errno);
        return sync_folder(folder_of(path));
      });
  if (code != EEXIST)
    return storage_failure("make folder", path, code);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return storage_failure("use folder", path, errno);
  if (!S_ISDIR(info.st_mode))
    return storage_failure("use folder", path, ENOTDIR);
  return {};
}

expected<void> remove_tree(const fs::path& path) {
  boost::system::error_code code;
  fs::remove_all(path, code);
  if (code)
    return storage_failure("remove", path, code.value());
  return {};
}

expected<void> rename_new(const fs::path& from, const fs::path& to) {
  return rename_new_at(AT_FDCWD, from, AT_FDCWD, to);
}

expected<void> rename_new_at(int from_folder, const fs::path& from,
                             int to_folder, const fs::path& to) {
  auto old = name_in(from_folder, from);
  auto name = name_in(to_folder, to);
  auto done = ::renameat2(from_folder, old.c_str(), to_folder, name.c_str(),
                          RENAME_NOREPLACE);
  // File systems without RENAME_NOREPLACE: the caller is the only writer of the
  // folder, so a check before the rename is enough.
  if (done != 0 && (errno == EINVAL || errno == ENOSYS)) {
    TROUPE_TRY(auto found,
               look_up_at(to_folder, name, to, AT_SYMLINK_NOFOLLOW));
    done = found.exists()
             ? (errno = EEXIST, -1)
             : ::renameat(from_folder, old.c_str(), to_folder, name.c_str());
  }
  if (done == 0)
    return {};
  if (errno == EEXIST || errno == ENOTEMPTY)
    return failure(ec::conflict, to.string() + " exists already");
  return storage_failure("rename " + from.string() + " to", to, errno);
}

} // namespace troupe::internal
