#include "troupe/runtime/checkpoint/copy_files.hpp"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

/// What `fs::copy_file` should do: Boost 1.74 copies ranges, which Linux has
/// refused between two kinds of file systems since 5.19.
/// Adds the bytes to *size*; 0, or what `errno` says.
int copy_bytes(int from, int to, std::uint64_t& size) {
  constexpr std::size_t piece = 1 << 30;
  ssize_t copied = 0;
  do {
    copied = ::sendfile(to, from, nullptr, piece);
    size += static_cast<std::uint64_t>(std::max<ssize_t>(copied, 0));
  } while (copied > 0 || (copied < 0 && errno == EINTR));
  return copied < 0 ? errno : 0;
}

/// Why *size* bytes of *from*, which had *whole*, are no copy of it.
error cut_short(const fs::path& from, std::uint64_t size, off_t whole) {
  return {ec::storage, from.string() + " had " + std::to_string(whole)
                         + " bytes, and only " + std::to_string(size)
                         + " could be copied: it was cut meanwhile"};
}

/// Replaces *to* by a copy of *from*: a reader of *to* finds the old file or
/// the new one, and another writer does no harm.
expected<void> replace_by_copy(const fs::path& from, const fs::path& to) {
  auto fail = [&](int code) {
    return tl::unexpected{
      storage_error("copy " + from.string() + " to", to, code)};
  };
  auto in = open_file(from, O_RDONLY, "read");
  if (!in)
    return tl::unexpected{in.error()};
  struct stat status {};
  if (::fstat(in->get(), &status) != 0)
    return fail(errno);
  if (!S_ISREG(status.st_mode))
    return fail(EINVAL);
  auto temporary = (to.parent_path() / ".copy-XXXXXX").string();
  unique_fd out{::mkostemp(temporary.data(), O_CLOEXEC)};
  if (!out)
    return fail(errno);
  std::uint64_t size = 0;
  auto code = copy_bytes(in->get(), out.get(), size);
  // More of it is fine: a log may grow.
  auto is_whole = size >= static_cast<std::uint64_t>(status.st_size);
  if (code == 0 && is_whole
      && (::fchmod(out.get(), status.st_mode & 0777) != 0
          || ::rename(temporary.c_str(), to.c_str()) != 0))
    code = errno;
  if (code == 0 && is_whole)
    return {};
  ::unlink(temporary.c_str());
  return code != 0 ? fail(code)
                   : tl::unexpected{cut_short(from, size, status.st_size)};
}

/// Why a copy into *target* would copy itself, again and again; nothing if it
/// would not. *target* need not exist.
expected<void> check_apart(const fs::path& source, const fs::path& target) {
  boost::system::error_code code;
  auto outer = fs::weakly_canonical(source, code);
  if (code)
    return tl::unexpected{storage_error("look up", source, code.value())};
  auto inner = fs::weakly_canonical(target, code);
  if (code)
    return tl::unexpected{storage_error("look up", target, code.value())};
  auto rest =
    std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (rest.first == outer.end())
    return failure(ec::invalid_argument, target.string() + " lies in "
                                           + source.string()
                                           + ", which is to be copied there");
  return {};
}

expected<void> make_folder(const fs::path& path) {
  boost::system::error_code code;
  fs::create_directories(path, code);
  if (code)
    return tl::unexpected{storage_error("make folder", path, code.value())};
  return {};
}

/// Whether the file *name* in the folder *source*, which is to be copied, is
/// true of that folder only: a run committed it, and the file is not among what
/// its manifest lists. Any other file is the user's.
expected<bool> stays_behind(const fs::path& source, const std::string& name) {
  if (!is_own_file(name))
    return false;
  auto found = read_manifest(source);
  if (!found && found.error().code != ec::corrupt)
    return tl::unexpected{found.error()};
  return found
         && std::ranges::find(found->files, name, &file_entry::path)
              == found->files.end();
}

/// Where a file lies in the folder that is copied.
struct position {
  bool is_top = true;
  bool is_behind_link = false; ///< Below a link to a folder: not of this one.
};

/// Calls *place* with every file below *source*, where it belongs, and its
/// position.
template <class Place>
expected<void> for_each_file(const fs::path& source, const fs::path& target,
                             const Place& place, position at = {}) {
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
    auto ok = expected<void>{};
    if (found->is_folder()) {
      auto itself = look_up_link(i->path());
      if (!itself)
        return tl::unexpected{itself.error()};
      position below{false, at.is_behind_link || itself->is_link()};
      ok = make_folder(to).and_then(
        [&] { return for_each_file(i->path(), to, place, below); });
    } else {
      auto stays = at.is_top ? stays_behind(source, name.string()) : false;
      if (!stays)
        return tl::unexpected{stays.error()};
      if (!*stays)
        ok = place(i->path(), to, at);
    }
    if (!ok)
      return ok;
  }
  if (code)
    return tl::unexpected{storage_error("list", source, code.value())};
  return {};
}

} // namespace

expected<void> copy_files(const fs::path& source, const fs::path& target) {
  return check_apart(source, target)
    .and_then([&] { return make_folder(target); })
    .and_then([&] {
      return for_each_file(
        source, target,
        [](const fs::path& from, const fs::path& to, const position&) {
          return replace_by_copy(from, to);
        });
    });
}

expected<std::vector<fs::path>> link_files(const fs::path& source,
                                           const fs::path& target) {
  std::vector<fs::path> result;
  auto link = [&](const fs::path& from, const fs::path& to,
                  const position& at) -> expected<void> {
    if (at.is_behind_link) // It is not in *source*.
      return replace_by_copy(from, to);
    result.push_back(from);
    auto found = look_up_link(from);
    if (!found)
      return tl::unexpected{found.error()};
    // Another file system, one without links, a file of somebody else, a
    // symbolic link, one that may still be written to by another name: a copy.
    if (!found->is_file() || found->links > 1
        || ::link(from.c_str(), to.c_str()) != 0)
      return replace_by_copy(from, to);
    return {};
  };
  return check_apart(source, target)
    .and_then([&] { return for_each_file(source, target, link); })
    .map([&] { return std::move(result); });
}

} // namespace troupe
