#include "troupe/runtime/checkpoint/copy_files.hpp"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <cerrno>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

/// What `fs::copy_file` should do: Boost 1.74 copies ranges, which Linux has
/// refused between two kinds of file systems since 5.19.
expected<void> copy_bytes(const fs::path& from, const fs::path& to) {
  auto fail = [&](int code) {
    return tl::unexpected{
      storage_error("copy " + from.string() + " to", to, code)};
  };
  auto in = open_file(from, O_RDONLY | O_NONBLOCK, "read");
  if (!in)
    return tl::unexpected{in.error()};
  struct stat status {};
  if (::fstat(in->get(), &status) != 0)
    return fail(errno);
  if (!S_ISREG(status.st_mode))
    return fail(EINVAL);
  auto out = open_file(to, O_WRONLY | O_CREAT | O_EXCL, "write");
  if (!out)
    return tl::unexpected{out.error()};
  constexpr std::size_t piece = 1 << 30;
  ssize_t copied = 0;
  do
    copied = ::sendfile(out->get(), in->get(), nullptr, piece);
  while (copied > 0 || (copied < 0 && errno == EINTR));
  if (copied < 0 || ::fchmod(out->get(), status.st_mode & 0777) != 0)
    return fail(errno);
  return {};
}

expected<void> copy_file(const fs::path& from, const fs::path& to, bool move) {
  auto found = look_up_link(from);
  if (!found)
    return tl::unexpected{found.error()};
  boost::system::error_code code;
  if (move && !found->is_link()) {
    fs::rename(from, to, code);
    if (!code)
      return {};
    // Another file system: copy and remove.
  }
  if (auto ok = copy_bytes(from, to); !ok)
    return ok;
  if (move)
    fs::remove(from, code);
  return {};
}

} // namespace

expected<void> copy_files(const fs::path& source, const fs::path& target,
                          bool move) {
  auto folder = look_up(source);
  if (!folder)
    return tl::unexpected{folder.error()};
  if (!folder->is_folder())
    return failure(ec::storage,
                   "there is no checkpoint folder " + source.string());
  boost::system::error_code code;
  for (fs::directory_iterator i{source, code}, end; !code && i != end;
       i.increment(code)) {
    auto name = i->path().filename();
    auto to = target / name;
    auto found = look_up(i->path());
    if (!found)
      return tl::unexpected{found.error()};
    if (found->is_folder()) {
      fs::create_directory(to, code);
      if (code)
        return tl::unexpected{storage_error("make folder", to, code.value())};
      if (auto ok = copy_files(i->path(), to, move); !ok)
        return ok;
    } else if (name != manifest_file_name) {
      if (auto ok = copy_file(i->path(), to, move); !ok)
        return ok;
    }
  }
  if (code)
    return tl::unexpected{storage_error("list", source, code.value())};
  return {};
}

} // namespace troupe
