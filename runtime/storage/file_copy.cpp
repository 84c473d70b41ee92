#include "troupe/runtime/storage/file_copy.hpp"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Whether a retry would fail, too, unless something changes.
bool lasts(int code) {
  constexpr int all[] = {EACCES, EFBIG,  EINVAL, EISDIR,  ELOOP, ENAMETOOLONG,
                         ENOENT, ENODEV, ENXIO,  ENOTDIR, EPERM, EXDEV};
  return std::ranges::find(all, code) != std::end(all);
}

error copy_error(std::string_view action, const fs::path& path, int code) {
  auto result = storage_error(action, path, code);
  result.code = lasts(code) ? ec::invalid_argument : ec::storage;
  return result;
}

/// Copies through memory: the only way for files that the kernel generates
/// on reading (`/proc`). Adds the bytes to *size*; 0, or what `errno`
/// says.
int copy_by_reading(int from, int to, std::uint64_t& size) {
  std::vector<char> buffer(1 << 16);
  for (;;) {
    auto count =
      uninterrupted([&] { return ::read(from, buffer.data(), buffer.size()); });
    if (count <= 0)
      return count < 0 ? errno : 0;
    for (ssize_t done = 0; done < count;) {
      auto written = ::write(to, buffer.data() + done,
                             static_cast<std::size_t>(count - done));
      if (written < 0 && errno != EINTR)
        return errno;
      done += std::max<ssize_t>(written, 0);
    }
    size += static_cast<std::uint64_t>(count);
  }
}

/// What `fs::copy_file` should do: Boost 1.74 copies ranges, which Linux has
/// refused between two file systems of different kinds since 5.19. Adds the
/// bytes to *size*; 0, or what `errno` says.
int copy_bytes(int from, int to, std::uint64_t& size) {
  constexpr std::size_t piece = 1 << 30;
  ssize_t copied = 0;
  do {
    copied = ::sendfile(to, from, nullptr, piece);
    size += static_cast<std::uint64_t>(std::max<ssize_t>(copied, 0));
  } while (copied > 0 || (copied < 0 && errno == EINTR));
  if (copied < 0 && errno == EINVAL && size == 0)
    return copy_by_reading(from, to, size);
  return copied < 0 ? errno : 0;
}

/// Whether *in*, which gave fewer bytes than the *size* that it had, was cut
/// meanwhile. A file that the kernel generates (`/sys`) reports a larger size
/// than it has.
bool was_cut(int in, off_t size) {
  struct stat now {};
  char byte = 0;
  return ::fstat(in, &now) != 0 || now.st_size < size
         || ::read(in, &byte, 1) != 0; // It has grown again.
}

/// Why *size* bytes of *from*, which had *whole*, are not a copy of it.
error cut_short(const fs::path& from, std::uint64_t size, off_t whole) {
  return {ec::storage,
          concat(from.string(), " had ", whole, " bytes, and only ", size,
                 " could be copied: it was truncated meanwhile")};
}

constexpr std::string_view copy_prefix = ".troupe-copy-";

/// The name of an unfinished copy has its own inode: no user's file is taken
/// for one.
expected<std::string> temporary_name(const unique_fd& file,
                                     const fs::path& path) {
  struct stat found {};
  if (::fstat(file.get(), &found) != 0)
    return tl::unexpected{copy_error("look up", path, errno)};
  return concat(copy_prefix, found.st_ino);
}

/// A new file for the bytes of a copy.
struct copy_file_in_work {
  unique_fd file;
  std::string name; ///< Empty: it has none, and is gone if the process ends.
};

std::string path_in_proc(const unique_fd& file) {
  return concat("/proc/self/fd/", file.get());
}

/// A file without a name; none where the file system has no such files, or
/// where `link_unnamed` finds none.
copy_file_in_work new_unnamed_file(int folder) {
  unique_fd file{::openat(folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600)};
  if (file && ::access(path_in_proc(file).c_str(), F_OK) != 0)
    file = {};
  return {std::move(file), {}};
}

expected<copy_file_in_work> new_named_file(const copy_target& to) {
  static std::atomic<std::uint64_t> serial = 0;
  for (;;) {
    auto name = concat(copy_prefix, ::getpid(), '-', serial++);
    unique_fd file{::openat(to.folder, name.c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    if (!file && (errno == EEXIST || errno == EINTR))
      continue;
    if (!file)
      return tl::unexpected{copy_error("create", to.path, errno)};
    auto own = temporary_name(file, to.path);
    if (own
        && ::renameat(to.folder, name.c_str(), to.folder, own->c_str()) != 0)
      own = tl::unexpected{copy_error("create", to.path, errno)};
    if (!own) {
      ::unlinkat(to.folder, name.c_str(), 0);
      return tl::unexpected{own.error()};
    }
    return copy_file_in_work{std::move(file), *std::move(own)};
  }
}

/// Links an unnamed file as *name*: 0, or what `errno` says.
int link_unnamed(const unique_fd& file, int folder, const std::string& name) {
  auto linked = ::linkat(AT_FDCWD, path_in_proc(file).c_str(), folder,
                         name.c_str(), AT_SYMLINK_FOLLOW);
  return linked == 0 ? 0 : errno;
}

/// Why the folder *path*, which could not be made, cannot be made.
int folder_problem(fs::path path) {
  while (::mkdir(path.c_str(), 0777) != 0) {
    struct stat found {};
    if (errno == EEXIST)
      return ::stat(path.c_str(), &found) == 0 && !S_ISDIR(found.st_mode)
               ? ENOTDIR
               : EAGAIN;
    if (errno != ENOENT || !path.has_parent_path())
      return errno;
    path = path.parent_path();
  }
  return EAGAIN; // By now it can.
}

/// What a copy is made of.
struct copy_source {
  const unique_fd& file;
  const fs::path& path;
  struct stat status;
};

tl::unexpected<error> copy_failure(const fs::path& from, const copy_target& to,
                                   int code) {
  return tl::unexpected{
    copy_error("copy " + from.string() + " to", to.path, code)};
}

/// One way to make a copy, in *out*. False: *out*, without a name, cannot get
/// one.
expected<bool> copy_into(copy_file_in_work& out, const copy_source& source,
                         const copy_target& to, copy_sync sync) {
  auto& [in, from, status] = source;
  auto fail = [&](int code) { return copy_failure(source.path, to, code); };
  std::uint64_t size = 0;
  if (auto code = copy_bytes(in.get(), out.file.get(), size); code != 0)
    return fail(code);
  // A longer file is fine: a log may grow.
  if (size < static_cast<std::uint64_t>(status.st_size)
      && was_cut(in.get(), status.st_size))
    return tl::unexpected{cut_short(from, size, status.st_size)};
  if (::fchmod(out.file.get(), status.st_mode & 0777) != 0)
    return fail(errno);
  if (sync == copy_sync::yes)
    TROUPE_TRY_VOID(sync_file(out.file, to.path));
  if (out.name.empty()) {
    auto code = link_unnamed(out.file, to.folder, to.name.string());
    if (code == 0)
      return true;
    if (code != EEXIST)
      return false;
    // A link replaces nothing.
    TROUPE_TRY(auto name, temporary_name(out.file, to.path));
    if (code = link_unnamed(out.file, to.folder, name); code != 0)
      return fail(code);
    out.name = std::move(name);
  }
  if (::renameat(to.folder, out.name.c_str(), to.folder, to.name.c_str()) != 0)
    return fail(errno);
  out.name.clear();
  return true;
}

} // namespace

expected<void> replace_by_copy(const unique_fd& in, const fs::path& from,
                               const copy_target& to, copy_sync sync) {
  copy_source source{in, from, {}};
  if (::fstat(in.get(), &source.status) != 0)
    return copy_failure(from, to, errno);
  if (!S_ISREG(source.status.st_mode))
    return copy_failure(from, to, EINVAL);
  auto copy = [&](copy_file_in_work& out) {
    auto done = copy_into(out, source, to, sync);
    if (!out.name.empty())
      ::unlinkat(to.folder, out.name.c_str(), 0);
    return done;
  };
  if (auto out = new_unnamed_file(to.folder); out.file) {
    TROUPE_TRY(auto done, copy(out));
    if (done)
      return {};
    if (::lseek(in.get(), 0, SEEK_SET) != 0)
      return copy_failure(from, to, errno);
  }
  TROUPE_TRY(auto out, new_named_file(to));
  TROUPE_TRY_VOID(copy(out));
  return {};
}

expected<void> copy_file(const fs::path& from, const fs::path& to,
                         copy_sync sync) {
  auto folder = to.has_parent_path() ? to.parent_path() : fs::path{"."};
  if (auto made = make_folders(folder, 0777); !made) {
    auto code = folder_problem(folder);
    return tl::unexpected{error{
      lasts(code) ? ec::invalid_argument : ec::storage, made.error().message}};
  }
  // Without O_NONBLOCK a pipe would wait for a writer.
  unique_fd in{::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!in)
    return tl::unexpected{copy_error("read", from, errno)};
  unique_fd above{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!above)
    return tl::unexpected{copy_error("open folder", folder, errno)};
  return replace_by_copy(in, from, {above.get(), to.filename(), to}, sync)
    .and_then([&]() -> expected<void> {
      return sync == copy_sync::yes ? sync_folder(folder) : expected<void>{};
    });
}

bool is_unfinished_copy(const fs::path& path) {
  auto name = path.filename().string();
  struct stat found {};
  return name.starts_with(copy_prefix) && ::lstat(path.c_str(), &found) == 0
         && S_ISREG(found.st_mode) && name == concat(copy_prefix, found.st_ino);
}

} // namespace troupe::internal
